//! What `terral stat` says of files of other machines: what their home says, soon, or that it does
//! not answer. Real servers, a real network between namespaces.
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
    let script = format!(
        "{SAYS} cd {home}
        mkdir /terral/d; on h1 'cd /terral/d; seq 1000 > f; chmod 640 f; seq 9 > g
            mkdir ../e; touch ../e/f'; touch /terral/d/last
        says h2 /terral/d/f home heard size mode
        on h2 \"$TERRAL wait /terral/d/f\"
        says h2 /terral/d/f in_backing owed_bytes; says h0 /terral/d/f in_backing heard
        server=$(pid_of h1); kill -STOP $server; begin=$(date +%s)
        says h2 /terral/d/f home heard in_backing size
        on h2 \"$TERRAL stat /terral/d/g\" | grep -c 'does not answer'
        on h2 \"$TERRAL stat /terral/e/f\" 2>&1 | grep -o 'e/f: .* does not answer'
        [ $(($(date +%s) - begin)) -lt 7 ] && echo soon
        kill -CONT $server; sleep 1; says h2 /terral/d/g heard size"
    );
    let output = machines.run_with(&["--to", &to.display().to_string()], &script);
    let text = String::from_utf8_lossy(&output.stdout);
    let expected = "1 True 3893 416\nTrue 0\nTrue True\n1 False False 3893\n1\n\
        e/f: a machine that has a directory of this path does not answer\nsoon\nTrue 18\n";
    assert_eq!(text, expected, "{}", said(&output));
}
