//! Capabilities of programs on several machines: one that was handed out counts on all of them,
//! what is revoked ends on all, and what servers do for each other goes on. Not here: one machine
//! (`capabilities`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod keys;
mod launched;
mod namespaces;
mod writers;

use std::os::unix::fs::PermissionsExt;

use launched::said;
use namespaces::Machines;
use writers::{WRITER, ends};

/// What a script says, on standard error, too.
fn says(machines: &Machines, script: &str) -> Vec<String> {
    let home = machines.home().display();
    let output = machines.run(&format!(
        "home={home}; cap=\"$TERRAL cap\"
        exec 2>&1; {script}"
    ));
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

/// What a script says that has `writer HOST CAPABILITY NAME`, which begins one.
fn with_writers(machines: &Machines, script: &str) -> Vec<String> {
    let program = machines.home().join("writer.py");
    std::fs::write(&program, WRITER).expect("writes");
    let program = program.display();
    says(
        machines,
        &format!(
            "writer() {{ on $1 \"TERRAL_CAPABILITY=$2 python3 {program} /terral/$3 \\
                $home/$3.said $home/over\" & until_said $3 wrote; }}
            until_said() {{ until grep -q \"$2\" $home/$1.said 2> /dev/null; do sleep 0.02; done; }}
            {script}"
        ),
    )
}

#[test]
fn one_is_good_on_all_machines_and_so_is_what_is_made_of_it() {
    let Some(machines) = Machines::new(3) else { return };
    let lines = says(
        &machines,
        "echo here > here; on h1 'echo there > /terral/there'
        on h1 'mkdir /terral/d; echo in > /terral/d/f'
        $cap get --allow read,list --instance machines -o $home/cap
        on h1 \"$cap get --allow read,list --instance machines -o $home/cap1\"
        $cap attenuate $home/cap --below /terral/d -o $home/below
        TERRAL_CAPABILITY=$home/cap cat here there
        TERRAL_CAPABILITY=$home/cap1 cat here there
        for at in 1 2; do
            on h$at \"TERRAL_CAPABILITY=$home/cap cat /terral/here /terral/there\"
            on h$at \"TERRAL_CAPABILITY=$home/cap rm /terral/here\"
            on h$at \"TERRAL_CAPABILITY=$home/cap1 cat /terral/there\"
            on h$at \"TERRAL_CAPABILITY=$home/below cat /terral/d/f\"
            on h$at \"TERRAL_CAPABILITY=$home/below cat /terral/here\"
        done
        head -c 99 $home/cap > $home/cut; chmod 600 $home/cut
        on h1 \"TERRAL_CAPABILITY=$home/cut cat /terral/here\"; true",
    );
    let denied = "Permission denied";
    let mut expected = vec!["here", "there", "here", "there"];
    for _ in 1..=2 {
        expected.extend(["here", "there", denied, "there", "in", denied]);
    }
    ends(&lines[..expected.len()], &expected);
    assert!(lines.len() > expected.len(), "what is damaged gives nothing: {lines:#?}");
}

#[test]
fn what_is_revoked_on_one_machine_ends_on_all() {
    let Some(machines) = Machines::new(3) else { return };
    let lines = with_writers(
        &machines,
        "$cap get --allow read,write,create,list --instance machines -o $home/cap
        writer h1 $home/cap one; writer h2 $home/cap two; writer h2 '' own; writer h0 '' first
        on h1 \"$cap revoke $home/cap --instance machines\" 2> /dev/null
        until_said one permitted; until_said two permitted
        sleep 0.2; cat $home/own.said $home/first.said
        on h2 \"TERRAL_CAPABILITY=$home/cap cat /terral/own\"
        on h2 \"$cap revoke --operations write --instance machines\" 2> /dev/null
        until_said own denied; until_said first denied
        on h1 'echo new > /terral/new && cat /terral/new'
        kill -9 $(pid_of h2); on h2 \"TERRAL_CAPABILITY=$home/cap cat /terral/own\"
        touch $home/over; wait; cat $home/*.said",
    );
    let (refused, denied) = ("Operation not permitted", "Permission denied");
    let both = ["wrote", "wrote", refused, "new", refused];
    let each = ["wrote", denied, "wrote", refused, "wrote", denied, "wrote", refused];
    ends(&lines, &[&both[..], &each].concat());
}

/// What was handed out ends with its lease, on a machine that nobody reaches, too; what the
/// machine's own programs do goes on until it is heard of.
#[test]
fn what_is_revoked_ends_on_a_machine_that_is_cut_off_and_that_is_said() {
    let Some(machines) = Machines::new(2) else { return };
    let at = |name: &str| machines.home().join(name);
    let lines = std::thread::scope(|threads| {
        threads.spawn(|| {
            launched::until("both write", || at("cut").exists());
            machines.link(1, false);
            std::fs::write(at("is_cut"), "").expect("writes");
            launched::until("it was revoked", || at("heal").exists());
            machines.link(1, true);
        });
        let lines = with_writers(
            &machines,
            "$cap get --allow read,write,create,list --instance machines -o $home/cap
            writer h1 $home/cap held; writer h1 '' own; touch $home/cut
            until [ -e $home/is_cut ]; do sleep 0.02; done
            $cap revoke $home/cap --instance machines; echo $?
            count() { cat $home/$1.said.count; }
            held=$(count held); own=$(count own); sleep 0.5
            [ $(count held) = $held ] && [ $(count own) != $own ] && echo only its own goes on
            $cap revoke --operations write --json --instance machines 2> /dev/null; echo $?
            touch $home/heal; until_said held permitted; until_said own denied
            touch $home/over; wait; cat $home/held.said $home/own.said",
        );
        std::fs::write(at("cut"), "")
            .and_then(|()| std::fs::write(at("heal"), ""))
            .expect("writes");
        lines
    });
    let silent = lines.iter().any(|line| line.contains("h1 (member 1): does not answer"));
    assert!(silent, "{lines:#?}");
    let object = lines.iter().find(|line| line.contains("\"silent\"")).expect("an object");
    assert!(object.contains("h1"), "{object}");
    let rest = lines.iter().filter(|line| !line.contains("h1") && !line.contains("may do less"));
    let rest: Vec<String> = rest.cloned().collect();
    let (refused, denied) = ("Operation not permitted", "Permission denied");
    let said = ["1", "only its own goes on", "1", "wrote", refused, "wrote", denied];
    ends(&rest, &said);
}

/// Programs look at the lease themselves.
#[test]
fn what_is_revoked_ends_on_a_machine_whose_server_is_stopped() {
    let Some(machines) = Machines::new(2) else { return };
    let lines = with_writers(
        &machines,
        "$cap get --allow read,write,create,list --instance machines -o $home/cap
        writer h1 $home/cap held; server=$(pid_of h1); kill -STOP $server
        $cap revoke $home/cap --instance machines 2> /dev/null; echo $?
        count() { cat $home/held.said.count; }
        held=$(count); sleep 0.5; [ $(count) = $held ] && echo nothing is written
        kill -CONT $server; until_said held permitted
        touch $home/over; wait; cat $home/held.said",
    );
    ends(&lines, &["1", "nothing is written", "wrote", "Operation not permitted"]);
}

#[test]
fn what_the_server_does_for_other_machines_no_revocation_ends() {
    let Some(machines) = Machines::new(2) else { return };
    let lines = says(
        &machines,
        "echo here > here; on h1 'echo there > /terral/there'
        (exec 3>> here; touch $home/open; until [ -e $home/revoked ]; do sleep 0.02; done
            echo one >&3) & waits=$!
        until [ -e $home/open ]; do sleep 0.02; done
        $cap revoke --operations write --instance machines 2> /dev/null; touch $home/revoked
        wait $waits; on h1 'echo two >> /terral/here; echo two >> /terral/there'
        kill -9 $(pid_of h0); on h1 'echo three >> /terral/here'; cat here there",
    );
    let ending: Vec<String> = lines.iter().rev().take(5).rev().cloned().collect();
    ends(&ending, &["here", "two", "three", "there", "two"]);
    assert!(!lines.iter().any(|line| line == "one"), "{lines:#?}");
}

#[test]
fn who_has_logged_in_is_known_on_all_machines_and_who_has_logged_out_on_none() {
    let Some(machines) = Machines::new(3) else { return };
    let home = machines.home();
    let write = |name: &str, text: &str| {
        let path = home.join(name);
        std::fs::write(&path, text).expect("writes");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("changes");
        path
    };
    write("key", &keys::private(1));
    let list = format!("pilot read,list,write,create below=/d for=1h key {}\n", keys::public(1));
    let list = write("who", &list);
    let program = write("writer.py", WRITER);
    let to = home.join("to");
    std::fs::create_dir(&to).expect("makes");
    let script = format!(
        "home={home}; exec 2>&1
        mkdir d; on h1 'echo there > /terral/d/there; echo x > /terral/d/w'
        $TERRAL login -q --key $home/key -o $home/cred --instance machines
        on h1 \"$TERRAL login --key $home/key -o $home/cred1 --instance machines\"
        as() {{ on $1 \"TERRAL_CREDENTIAL=$home/cred $2\"; }}
        as h1 'cat /terral/d/there'; as h2 'cat /terral/d/there'
        as h2 'rm /terral/d/there'; as h2 'cat /terral/top'
        as h1 \"$TERRAL whoami --instance machines\" | head -1
        as h2 'python3 {program} /terral/d/w {home}/w.said {home}/over' & writer=$!
        until grep -q wrote $home/w.said 2> /dev/null; do sleep 0.02; done
        cp $home/cred $home/copy; server=$(pid_of h1); kill -9 $server; as h1 'cat /terral/d/there'
        on h1 \"$TERRAL logout $home/cred --instance machines\"
        until grep -q 'not permitted' $home/w.said; do sleep 0.02; done; wc -l < $home/w.said
        touch $home/over; wait $writer
        on h2 \"TERRAL_CREDENTIAL=$home/copy cat /terral/d/there\"
        on h2 'cat /terral/d/there'",
        home = home.display(),
        program = program.display(),
    );
    let (to, list) = (to.display().to_string(), list.display().to_string());
    let output = machines.run_with(&["--to", &to, "--principals", &list], &script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    ends(
        &lines,
        &[
            "log in on the first): not supported",
            "there",
            "there",
            "rm: cannot remove '/terral/d/there': Permission denied",
            "cat: /terral/top: Permission denied",
            "principal   key:pilot",
            "there",
            "terral: key:pilot has logged out: what was got by it is good no more",
            "2",
            "or ended (terral login again): capability refused",
            "cat: /terral/d/there: Permission denied",
            "there",
        ],
    );
}
