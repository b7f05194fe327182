//! Machines that are lost, and removed from a run: `terral fence`. Real servers, real programs, a
//! real network between namespaces. Not here: the protocol (`partition`), and servers in the
//! simulation (`server`, `sim/peers/fencing`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::process::Output;

use launched::said;
use namespaces::Machines;

/// A permanent directory that all machines see.
fn permanent(machines: &Machines) -> String {
    let to = machines.home().join("to");
    std::fs::create_dir(&to).expect("makes");
    to.display().to_string()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Words of the scripts: `lose HOST PID...` kills what runs there, its `terral host` first;
/// `timed WORDS` says whether that took less than three seconds.
const WORDS: &str = r#"
lose() { server=$(pid_of $1); host=$(ps -o ppid= -p $server); shift; kill -9 $host $server $*; }
timed() { begin=$(date +%s%3N); "$@"
    [ $(($(date +%s%3N) - begin)) -lt 3000 ] && echo soon || echo late; }
"#;

#[test]
fn what_a_dead_machine_had_is_named_and_the_rest_is_used_again_and_arrives() {
    let Some(machines) = Machines::new(3) else { return };
    let (to, home) = (permanent(&machines), machines.home().display().to_string());
    // The dead one is the last to change the root: it has that.
    let script = format!(
        "{WORDS}
        mkdir d; seq 100 > d/mine; on h2 'mkdir /terral/e; seq 200 > /terral/e/f'; sleep 2
        on h1 'echo $$ > {home}/pid; cd /terral; exec 3> d/lost; seq 50000 >&3
            seq 9 > d/arrives; touch top1; mkdir own; touch {home}/wrote; exec sleep 1000' &
        until [ -e {home}/wrote ]; do sleep 0.1; done
        until [ -e {to}/d/arrives -a -e {to}/own -a -e {to}/top1 ]; do sleep 0.1; done
        on h2 'ls -l /terral/d' | wc -l
        on h1 'touch /terral/top2; rm /terral/top2'
        lose h1 $(cat {home}/pid)
        cat d/lost > {home}/waited 2>&1 & waits=$!
        on h2 'cat /terral/d/lost' > {home}/waited2 2>&1 & waits2=$!
        sleep 2; timed $TERRAL fence h1 --dead; timed wait $waits; timed wait $waits2
        cat {home}/waited {home}/waited2
        timed ls d; timed on h2 'ls /terral; cat /terral/d/mine | wc -l; wc -l < /terral/e/f'
        timed cat d/lost; timed on h2 'cat /terral/d/lost'; wc -l < d/arrives
        echo new > d/new; on h2 'echo new > /terral/d/new2; cat /terral/d/new'
        touch top; rm top; mkdir again; echo 1 > own/f
        $TERRAL status --instance machines | grep -o 'lost.*/d/lost: only member 1'
        $TERRAL status --instance machines | grep -o 'restored  */: put together without member 1'
        $TERRAL status --instance machines | grep -o 'removed: h1 (member 1)'"
    );
    let output = machines.run_with(&["--to", &to, "--json"], &script);
    let (told, complained) = (told(&output), said(&output));
    assert_eq!(output.status.code(), Some(74), "{complained}");
    let (before, summary) = told.trim_end().rsplit_once('\n').expect("lines");
    let expected = "4\nsoon\nsoon\nsoon\ncat: d/lost: Input/output error\n\
        cat: /terral/d/lost: Input/output error\narrives\nlost\nmine\nsoon\n\
        d\ne\nown\ntop1\n100\n200\nsoon\nsoon\nsoon\n9\nnew\n\
        lost      /d/lost: only member 1\nrestored  /: put together without member 1\n\
        removed: h1 (member 1)";
    assert_eq!(before, expected, "{complained}");
    let how = "`terral fence h1 --dead --instance machines`";
    assert!(complained.contains(how) && complained.contains("h1: gone"), "{complained}");
    assert!(
        summary.contains("\"path\":\"/d/lost\"") && summary.contains("\"count\":1"),
        "{summary}"
    );
    let there = "cat d/new d/new2 own/f | wc -l; wc -l < d/mine; ls; ls d";
    let arrived = machines.shell_on(0, &format!("cd {to}; {there}"));
    let names = "again\nd\ne\nown\ntop1\narrives\nmine\nnew\nnew2\n";
    assert_eq!(self::told(&arrived), format!("3\n100\n{names}"), "{}", said(&arrived));
}

#[test]
fn who_may_be_removed_and_by_whom_is_said() {
    let Some(machines) = Machines::new(3) else { return };
    let output = machines.run(
        "$TERRAL fence nobody --dead; echo $?; $TERRAL fence 7; echo $?; $TERRAL fence 0; echo $?
        on h2 \"$TERRAL fence h1\"; echo $?
        $TERRAL fence h1; sleep 3; $TERRAL fence 1; echo $?; $TERRAL fence 1 --dead && echo dead
        $TERRAL fence h1 --dead; echo $?; touch f; on h2 'ls /terral'",
    );
    assert_eq!(told(&output), "1\n1\n1\n1\n1\ndead\n1\nf\n", "{}", said(&output));
    let complained = said(&output);
    for line in [
        "nobody: no such member (`terral status` lists them)",
        "7: no such member",
        "member 0: is this server, which says who is in",
        "machines: only member 0 removes machines: ask there",
        "h1 (member 1): was removed before (--dead may be said later",
        "h1: gone: was removed from the run (`terral fence`)",
    ] {
        assert!(complained.contains(line), "{line}: {complained}");
    }
}

/// Writes a line to a file of its own each tenth of a second, and says which was the last that was
/// written, and why the next was not.
const WRITES: &str = r#"
import os, sys, time
n = 0
try:
    while True:
        with open(f"/terral/own/{n}", "w") as f: f.write(str(n))
        n += 1; time.sleep(0.1)
except OSError as e:
    open(sys.argv[1], "w").write(f"{n} {e.strerror}\n")
"#;

#[test]
fn a_frozen_machine_that_was_removed_and_comes_back_is_refused_and_undoes_nothing() {
    let Some(machines) = Machines::new(3) else { return };
    let (to, home) = (permanent(&machines), machines.home().display().to_string());
    std::fs::write(machines.home().join("writes.py"), WRITES).expect("writes");
    let script = format!(
        "{WORDS}
        mkdir d; seq 100 > d/mine; on h1 'mkdir /terral/own; touch /terral/own/first'; sleep 2
        touch here; on h1 'python3 {home}/writes.py {home}/refused' & writes=$!
        until [ -e {to}/own/0 ]; do sleep 0.1; done
        frozen=$(pid_of h1); kill -STOP $frozen; sleep 1
        timed $TERRAL fence h1
        timed cat own/0; cat d/mine | wc -l; echo mine > own2; on h2 'cat /terral/own2'
        kill -CONT $frozen; until [ -e {home}/refused ]; do sleep 0.1; done
        wait $writes; grep -Eq 'Input/output error|not connected' {home}/refused && echo refused
        on h2 'echo more >> /terral/own2'; cat own2; $TERRAL fence h1 --dead && ls | wc -l"
    );
    let output = machines.run_with(&["--to", &to], &script);
    let complained = said(&output);
    assert_eq!(output.status.code(), Some(74), "{}{complained}", told(&output));
    let expected = "soon\nsoon\n100\nmine\nrefused\nmine\nmore\n4\n";
    assert_eq!(told(&output), expected, "{complained}");
    assert!(complained.contains("h1: gone: was removed from the run"), "{complained}");
    let recovered = machines.terral(1).args(["recover", "machines"]).output().expect("starts");
    assert!(recovered.status.success(), "{}", said(&recovered));
    // All that its program was told to be written is there.
    let whole = format!(
        "cd {to}; last=$(cut -d' ' -f1 {home}/refused); n=0
        while [ $n -lt $last ]; do [ $(cat own/$n) = $n ] || echo $n; n=$((n + 1)); done
        cat own2; ls"
    );
    let whole = machines.shell_on(0, &whole);
    assert_eq!(told(&whole), "mine\nmore\nd\nhere\nown\nown2\n", "{}", said(&whole));
}

/// Makes, moves and removes names for eight seconds, and says which files are not as it was told:
/// those that are missing, and those that are there once more. What ended with an error is unknown.
const LOAD: &str = r#"
import os, sys, time
me, begin, n, there, unknown = sys.argv[1], time.time(), 0, set(), set()
os.chdir("/terral/shared")
def does(act, takes, makes):
    try:
        act(); there.difference_update(takes); there.update(makes)
    except OSError:
        unknown.update(takes + makes)
def write(name):
    with open(name, "w") as f: f.write(name)
while time.time() - begin < 8:
    a, b, c = f"{me}.f{n}", f"{me}.g{n}", f"{me}.d{n}"
    does(lambda: write(a), [], [a])
    does(lambda: os.mkdir(c), [], [c])
    if n % 3 == 0: does(lambda: os.rename(a, b), [a], [b])
    if n % 5 == 1: does(lambda: os.unlink(a), [a], [])
    n += 1
time.sleep(2)
have = {name for name in os.listdir(".") if name.startswith(me + ".")}
files = [name for name in there - unknown if name[len(me) + 1] in "fg"]
bad = [name for name in files if open(name).read()[-1] != name[-1]]
print(me, sorted(there - have - unknown), sorted(have - there - unknown), bad, n > 20, flush=True)
"#;

#[test]
fn of_those_who_make_and_move_names_as_one_dies_the_others_lose_none() {
    let Some(machines) = Machines::new(3) else { return };
    let (to, home) = (permanent(&machines), machines.home().display().to_string());
    std::fs::write(machines.home().join("load.py"), LOAD).expect("writes");
    let script = format!(
        "{WORDS}
        mkdir shared
        on h1 'echo $$ > {home}/pid; exec python3 {home}/load.py h1' > {home}/h1 &
        python3 {home}/load.py h0 > {home}/h0 & one=$!
        on h2 'python3 {home}/load.py h2' > {home}/h2 & other=$!
        sleep 3; lose h1 $(cat {home}/pid); sleep 1; timed $TERRAL fence h1 --dead
        wait $one; wait $other; cat {home}/h0 {home}/h2
        for h in h0 h2; do on $h 'ls /terral/shared | grep -v h1 | cksum'; done | uniq | wc -l"
    );
    let output = machines.run_with(&["--to", &to], &script);
    let complained = said(&output);
    let expected = "soon\nh0 [] [] [] True\nh2 [] [] [] True\n1\n";
    assert_eq!(told(&output), expected, "{complained}");
    assert_eq!(output.status.code(), Some(74), "{complained}");
    let here = machines.shell_on(0, &format!("ls {to}/shared | grep -c '^h[02][.][fg]'"));
    assert!(told(&here).trim().parse::<u32>().is_ok_and(|count| count > 40), "{}", told(&here));
}
