//! Machines whose links are slow: what holds of those beside each other holds of them, only later.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::fs;

use launched::said;
use namespaces::{Machines, SLOW};

/// Connects to the machine whose address it is told, and says how long that took.
const FAR: &str = "import socket, sys, time
begin = time.monotonic()
try: socket.create_connection((sys.argv[1], 9))
except ConnectionRefusedError: pass
print(time.monotonic() - begin)";

/// Counts under a lock.
const COUNT: &str = "import fcntl, os
f = os.open('/terral/count', os.O_RDWR)
for _ in range(8):
    fcntl.lockf(f, fcntl.LOCK_EX)
    number = int(os.pread(f, 20, 0) or b'0')
    os.pwrite(f, b'%d' % (number + 1), 0)
    fcntl.lockf(f, fcntl.LOCK_UN)
os.close(f)";

#[test]
fn machines_whose_links_are_slow_see_one_namespace_and_bring_all_of_it() {
    let Some(mut machines) = Machines::new(3) else { return };
    machines.slow_down(1);
    machines.slow_down(2);
    let took = machines.command(1, "python3").args(["-c", FAR, "10.77.0.3"]).output();
    let took = String::from_utf8_lossy(&took.expect("starts").stdout).trim().parse::<f64>();
    assert!(took.expect("there is a way") >= 4.0 * SLOW.as_secs_f64(), "both are slow");
    let (home, to) = (machines.home().to_path_buf(), machines.home().join("to"));
    fs::create_dir(&to).expect("makes");
    fs::write(home.join("count.py"), COUNT).expect("writes");
    let home = home.display();
    let output = machines.run_with(
        &["--to", to.to_str().expect("a path")],
        &format!(
            "on h1 'cd /terral; seq 100000 > a; echo 0 > count; mkdir d;
                 for n in 1 2 3 4 5 6 7 8 9; do echo $n > d/$n; done'
            on h2 'cd /terral; tail -n1 a; cat d/*; seq 100001 100100 >> a;
                 mv d/3 x; echo 2 > d/1'
            on h0 'cd /terral; tail -n1 a; ls d; cat x d/1; mv d e'
            for at in h0 h1 h2; do on $at 'python3 {home}/count.py' & done; wait
            on h1 'cd /terral; cat count; echo; ls e; rm e/9'
            on h2 'cd /terral; cat e/8; cat e/9 2>&1 | grep -c No'"
        ),
    );
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let seen: Vec<&str> = text.split_whitespace().collect();
    let digits = "1 2 3 4 5 6 7 8 9";
    let left = "1 2 4 5 6 7 8 9";
    let expected = format!("100000 {digits} 100100 {left} 3 2 24 {left} 8 1");
    assert_eq!(seen.join(" "), expected, "{}", said(&output));
    let numbers: Vec<String> = (1..=100_100).map(|number| format!("{number}\n")).collect();
    assert_eq!(fs::read_to_string(to.join("a")).expect("it is there"), numbers.concat());
    let count = fs::read_to_string(to.join("count")).expect("it is there");
    assert_eq!(count.trim(), "24");
    let names = fs::read_dir(to.join("e")).expect("it is there").count();
    assert_eq!((names, to.join("d").exists(), to.join("x").exists()), (7, false, true));
}
