//! Extended attributes over several machines: real servers, real programs, a real network between
//! namespaces. What any machine sets, all see, and it arrives in the permanent directory.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::fs;

use launched::said;
use namespaces::Machines;

/// Sets one, removes one, or says all.
const XATTRS: &str = r#"
import os, sys
what, path, *rest = sys.argv[1:]
if what == "set": os.setxattr(path, "user." + rest[0], rest[1].encode())
elif what == "remove": os.removexattr(path, "user." + rest[0])
else: print(*(f"{name}={os.getxattr(path, name).decode()}" for name in sorted(os.listxattr(path))))
"#;

#[test]
fn what_any_machine_sets_all_see_also_once_it_has_moved_and_it_arrives() {
    let Some(machines) = Machines::new(3) else { return };
    let program = machines.home().join("xattrs.py");
    fs::write(&program, XATTRS).expect("writes");
    let to = machines.home().join("to");
    fs::create_dir(&to).expect("makes");
    let script = format!(
        "of=\"python3 {}\"
        all() {{ for h in h0 h1 h2; do on $h \"$of say /terral/$1\"; done | uniq; }}
        mkdir d; echo > d/f
        on h1 \"$of set /terral/d/f a 1; $of set /terral/d x 2\"; all d/f; all d
        on h2 \"mv /terral/d /terral/e\"
        on h2 \"$of set /terral/e/f b 3; $of remove /terral/e/f a\"; all e/f
        on h2 \"echo > /terral/e/g; $of set /terral/e x 4; $of set /terral/e y 5\"; all e
        on h0 \"$of remove /terral/e/f a 2>&1 | grep -c Errno.61\"",
        program.display()
    );
    let options = ["--to", &to.display().to_string()];
    let output = machines.run_with(&options, &script);
    assert!(output.status.success(), "{}", said(&output));
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = ["user.a=1", "user.x=2", "user.b=3", "user.x=4 user.y=5", "1"];
    assert_eq!(seen.lines().collect::<Vec<_>>(), expected);
    for (name, all) in [("e/f", "user.b=3\n"), ("e", "user.x=4 user.y=5\n")] {
        let mut says = std::process::Command::new("python3");
        let says = says.arg(&program).arg("say").arg(to.join(name)).output().expect("starts");
        assert_eq!(String::from_utf8_lossy(&says.stdout), all, "{name}");
    }
}
