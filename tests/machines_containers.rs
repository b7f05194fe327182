//! Containers of a run over several machines: what is set on one holds on all, for files that are
//! open, wherever they were born; and a machine that does not answer is named, and lets nobody do
//! what was denied. Not here: one machine (`containers`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod keys;
mod launched;
mod namespaces;
mod writers;

use std::os::unix::fs::PermissionsExt;

use beside::by_python;
use launched::said;
use namespaces::Machines;
use writers::{WRITER, ends};

/// What a script says, on standard error, too: it has `as HOST COMMAND`, which acts as the pilot,
/// and `writer HOST PATH NAME`, which begins a writer so.
fn says(machines: &Machines, script: &str) -> Vec<String> {
    let home = machines.home();
    let write = |name: &str, text: &str| {
        let path = home.join(name);
        std::fs::write(&path, text).expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("changes");
        path.display().to_string()
    };
    write("key", &keys::private(1));
    let line = format!("pilot read,list,write,create key {}\n", keys::public(1));
    let (list, program) = (write("who", &line), write("writer.py", WRITER));
    let to = home.join("to");
    std::fs::create_dir(&to).expect("makes");
    let script = format!(
        "home={home}; exec 2>&1
        $TERRAL login -q --key $home/key -o $home/cred --instance machines
        as() {{ on $1 \"TERRAL_CREDENTIAL=$home/cred $2\"; }}
        container() {{ on $1 \"$TERRAL container $2 --instance machines\"; }}
        writer() {{ as $1 \"python3 {program} $2 $home/$3.said $home/over\" &
            until_said $3 wrote; }}
        until_said() {{ until [ \"$(tail -n 1 $home/$1.said 2> /dev/null)\" = \"$2\" ]; \\
            do sleep 0.02; done; }}
        count() {{ cat $home/$1.said.count; }}
        goes_on() {{ before=$(count $1); until [ $(count $1) -gt $before ]; \\
            do sleep 0.02; done; }}
        {script}",
        home = home.display(),
    );
    let to = to.display().to_string();
    let output = machines.run_with(&["--to", &to, "--principals", &list], &script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", said(&output));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn what_is_set_on_one_machine_holds_on_all() {
    let Some(machines) = Machines::new(3) else { return };
    let lines = says(
        &machines,
        "mkdir d; on h1 'echo there > /terral/d/there'; on h1 'touch /terral/d/one /terral/d/two'
        container h2 'create results --at d --allow key:pilot=read,list,write,create'
        writer h1 /terral/d/one one; writer h2 /terral/d/two two; writer h0 /terral/free free
        as h0 'cat /terral/d/there'; as h2 'cat /terral/d/there'
        as h1 'echo made > /terral/d/made; cat /terral/d/made'; as h2 'cat /terral/d/made'
        container h1 'set results --deny key:pilot'; echo $?
        until_said one 'Permission denied'; until_said two 'Permission denied'; goes_on free
        [ $(count one) = $(sleep 0.3; count one) ] && [ $(count two) = $(sleep 0.3; count two) ] \\
            && echo nothing is written
        for at in 0 1 2; do as h$at 'cat /terral/d/there'; done
        on h2 'cat /terral/d/there'; container h0 'show results' | tail -n 1
        server=$(pid_of h1); kill -9 $server; as h1 'cat /terral/d/there'
        container h0 'set results --allow key:pilot=write,read,list'
        until_said one wrote; until_said two wrote; as h1 'cat /terral/d/there'
        as h1 'touch /terral/d/new'
        touch $home/over; wait; cat $home/one.said $home/two.said $home/free.said",
    );
    let denied = "Permission denied";
    let each = ["wrote", denied, "wrote"];
    let first =
        ["there", "there", "made", "made", "0", "nothing is written", denied, denied, denied];
    let rest = ["there", "key:pilot  nothing", denied, "there", denied];
    ends(&lines, &[&first[..], &rest, &each, &each, &["wrote"]].concat());
}

/// The list is that of the first machine's server, which tells all.
#[test]
fn who_is_in_a_group_is_known_on_all_machines() {
    let Some(machines) = Machines::new(2) else { return };
    let lines = says(
        &machines,
        "mkdir d; echo there > d/there; on h1 'echo own > /terral/d/own; touch /terral/d/one'
        echo 'group crew = key:pilot' >> $home/who; server=$(pid_of h0); kill -9 $server
        container h1 'create results --at d --allow group:none=read'; echo $?
        container h1 'create results --at d --allow group:crew=read,list,write,create'; echo $?
        writer h1 /terral/d/one one
        for at in 0 1; do as h$at 'cat /terral/d/there /terral/d/own'; done
        sed -i s/crew/more/ $home/who; server=$(pid_of h0); kill -9 $server
        until_said one 'Permission denied'
        for at in 0 1; do as h$at 'cat /terral/d/there'; done
        server=$(pid_of h1); kill -9 $server; as h1 'cat /terral/d/there'
        container h1 'set results --allow group:more=read,list,write'; until_said one wrote
        as h1 'cat /terral/d/there'; touch $home/over; wait; cat $home/one.said",
    );
    let none = "group none: the list of principals has none: no such file or directory";
    let denied = "Permission denied";
    let both = ["there", "own", "there", "own"];
    let rest = [denied, denied, denied, "there", "wrote", denied, "wrote"];
    ends(&lines, &[&[none, "1", "0"], &both[..], &rest].concat());
}

/// Has an object on each machine, and says what came of that.
const PLACES: &str = r#"
import sys, terral
box = terral.Container.at("d")
for on in range(3):
    try:
        with box.create(int(sys.argv[1]), on=on) as made: made.write(b"there")
        print(on, "there")
    except OSError as error: print(on, error.strerror)
try: print(tuple(box.copy((7, 0), 1)))
except OSError as error: print(error.strerror)
"#;

#[test]
fn no_other_machine_has_an_object_for_who_may_not_create_it() {
    let Some(machines) = Machines::new(3) else { return };
    let program = machines.home().join("places.py");
    std::fs::write(&program, PLACES).expect("writes");
    let python = by_python(&program);
    let lines = says(
        &machines,
        &format!(
            "mkdir d; container h0 'create results --at d --allow key:pilot=read,list,write,create'
            as h2 '{python} 7'; container h0 'set results --allow key:pilot=read,list,write'
            as h2 '{python} 8'; as h1 '{python} 9'; ls d/*"
        ),
    );
    let denied = "permission denied";
    let not = [denied; 8];
    let names = ["d/0:", "7", "", "d/1:", "7", "", "d/2:", "7"];
    let first = ["0 there", "1 there", "2 there", "(7, 1)"];
    ends(&lines, &[&first[..], &not, &names].concat());
}

/// Programs look at the lease of what they may themselves, and the server at the epoch.
#[test]
fn a_machine_that_is_frozen_is_named_and_lets_nobody_do_what_was_denied() {
    let Some(machines) = Machines::new(2) else { return };
    let lines = says(
        &machines,
        "mkdir d; on h1 'echo there > /terral/d/there; touch /terral/d/one /terral/own'
        writer h1 /terral/d/one one; server=$(pid_of h1); kill -STOP $server
        container h0 'create results --at d --json'; echo $?
        container h0 'set results --deny key:pilot'; echo $?
        before=$(count one); sleep 0.5; [ $(count one) = $before ] && echo nothing is written
        kill -CONT $server; until_said one 'Permission denied'
        on h1 'cat /terral/d/there'; touch $home/over; wait; cat $home/one.said",
    );
    let named = "h1 (member 1): does not answer: who has logged in waits there until it does";
    assert!(lines[0].contains("\"silent\":[\"h1 (member 1)\"]"), "{lines:#?}");
    let expected = ["1", named, "1", "nothing is written", "there", "wrote", "Permission denied"];
    ends(&lines[1..], &expected);
}
