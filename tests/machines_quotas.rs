//! Quotas of containers over several machines: each has an equal part, which its own files count
//! for, and none exceeds it. Not here: one machine (`quotas`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

#[test]
fn each_machine_has_its_part_of_a_quota_and_all_together_do_not_exceed_it() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let script = "exec 2>&1; mkdir d
        on h1 '$TERRAL container create results --at d --quota 30MiB --instance machines'
        for host in h0 h1 h2; do
            on $host \"dd if=/dev/zero of=/terral/d/$host bs=256k count=100 status=none\"
        done
        for host in h0 h1 h2; do stat -c 'size %s' d/$host; done
        on h1 'rm /terral/d/h0 /terral/d/h1'
        on h2 'echo more >> /terral/d/h2; echo other 2> /dev/null > /terral/d/other' || :
        on h1 'head -c 8M /dev/zero > /terral/d/again && echo room again'";
    let script = script.replace("'$TERRAL", "\"$TERRAL").replace("machines'", "machines\"");
    let output = machines.run_with(&["--to", &to.display().to_string()], &script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", said(&output));
    let sizes = text.lines().filter_map(|line| line.strip_prefix("size "));
    let sizes: Vec<u64> = sizes.map(|size| size.parse().expect("a number")).collect();
    assert_eq!(sizes.len(), 3, "{text}");
    for size in &sizes {
        assert!((5 << 20..=10 << 20).contains(size), "{sizes:?}: {text}");
    }
    assert!(text.matches("quota exceeded").count() >= 3, "{text}");
    assert!(text.contains("room again"), "{text}");
}
