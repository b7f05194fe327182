//! What `terral stat`, `status` and `wait` say of other machines and their files: what those say
//! themselves, soon, or that they do not answer. Real servers, a real network between namespaces.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use launched::said;
use namespaces::Machines;

/// `says HOST FILE WORD...` tells those words of what the host's server says of a file.
const SAYS: &str = r#"
says() { at=$1; file=$2; shift 2; on $at "$TERRAL stat --json $file" > said.json
    python3 - $* <<'END'
import json, sys
safety = json.load(open("said.json"))["safety"]
print(*({**safety, **safety["attributes"]}[word] for word in sys.argv[1:]))
END
}
"#;

#[test]
fn any_machine_says_how_safe_a_file_is_or_soon_that_its_home_does_not_answer() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let home = machines.home().display();
    // Each of the three answers takes the two seconds that a machine has for one, and a little.
    let script = format!(
        "{SAYS} cd {home}
        mkdir /terral/d; on h1 'cd /terral/d; seq 1000 > f; chmod 640 f; seq 9 > g
            mkdir ../e; touch ../e/f'; touch /terral/d/last
        says h2 /terral/d/f home heard size mode
        on h2 \"$TERRAL wait /terral/d/f\"
        says h2 /terral/d/f in_backing owed_bytes; says h0 /terral/d/f in_backing heard
        server=$(pid_of h1); kill -STOP $server; begin=$(date +%s%3N)
        says h2 /terral/d/f home heard in_backing size
        on h2 \"$TERRAL stat /terral/d/g\" | grep -c 'does not answer'
        on h2 \"$TERRAL stat /terral/e/f\" 2>&1 | grep -o 'e/f: .* does not answer'
        [ $(($(date +%s%3N) - begin)) -lt 10000 ] && echo soon
        seq 7 > /terral/d/own; $TERRAL wait /terral/d/own && cat {home}/to/d/own | wc -l
        kill -CONT $server; sleep 1; says h2 /terral/d/g heard size"
    );
    let output = machines.run_with(&["--to", &to.display().to_string()], &script);
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "1 True 3893 416\nTrue 0\nTrue True\n1 False False 3893\n1\n\
        e/f: a machine that has a directory of this path does not answer\nsoon\n7\nTrue 18\n";
    assert_eq!(text, expected, "{}", said(&output));
}

#[test]
fn who_waits_on_one_machine_waits_for_what_all_others_owe() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    let to = to.display();
    // A machine that does not answer may owe anything.
    let script = format!(
        "on h1 'mkdir -p /terral/d/e; head -c 30000000 /dev/urandom > /terral/d/e/f
            cksum < /terral/d/e/f; touch /terral/g'
        server=$(pid_of h1); kill -STOP $server
        $TERRAL wait --wait-timeout 3; echo $?
        (sleep 2; kill -CONT $server) & $TERRAL wait; echo $?; cksum < {to}/d/e/f; wait
        on h2 \"$TERRAL wait --wait-timeout 20 /terral/d\"; echo $?
        on h1 'head -c 60000000 /dev/urandom > /terral/d/h; cksum < /terral/d/h'
        on h2 \"$TERRAL wait --json\" | grep -c '\"done\":true'; cksum < {to}/d/h"
    );
    let output = machines.run_with(&["--to", &to.to_string()], &script);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    let [first, "74", "0", arrived, "0", second, "1", arrived_too] = lines[..] else {
        panic!("{text}{}", said(&output));
    };
    assert_eq!((first, second), (arrived, arrived_too), "{}", said(&output));
    let silent = "not known what h1 (member 1) owes, as there is no answer";
    assert!(said(&output).contains(silent), "{}", said(&output));
}

#[test]
fn any_machine_says_how_all_are_and_which_does_not_answer() {
    let Some(machines) = Machines::new(3) else { return };
    // What a machine has that is stopped, others wait for: that is not to be the root.
    let script = "on h1 'mkdir /terral/d; seq 1000 > /terral/d/f'; on h2 'cat /terral/d/f' | wc -l
        touch last; $TERRAL status | grep '^  machine'
        on h2 \"$TERRAL status\" | grep -c 'machine .*, owes nothing'
        server=$(pid_of h1); kill -STOP $server
        on h2 \"$TERRAL status\" | grep 'machine .*answer'; kill -CONT $server";
    let output = machines.run(script);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let ["1000", all, one, two, three, "3", silent] = lines[..] else {
        panic!("{text}{}", said(&output));
    };
    assert!(all.contains("member 0 of 3"), "{all}");
    for (line, host) in [(one, "0 h0: "), (two, "1 h1: "), (three, "2 h2: ")] {
        assert!(line.contains(host) && line.contains(" used of "), "{line}");
    }
    assert!(two.contains("1 program, lent ") || two.contains("0 programs, lent "), "{two}");
    assert!(silent.contains("1 ") && silent.contains("does not answer"), "{silent}");
}
