//! Names that change places over several machines, by real programs, with a real network between
//! namespaces: what comes of it is compared with tmpfs, on each machine and in DIR. Not here: each
//! moment at which somebody may die (`server/sim/peers/exchanging`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use launched::said;
use namespaces::Machines;

/// `x.py A B`: lets two names change places, or says why not. `x.py storm DIR SEED COUNT`: does so
/// with random ones of the names there. `x.py watch DIR FLAG`: says which of them it has not found
/// until there is FLAG.
const EXCHANGES: &str = r#"
import ctypes, errno, itertools, os, random, sys
libc = ctypes.CDLL(None, use_errno=True)
names = lambda top: [f"{top}/{d}/{n}" for d in "abc" for n in range(4)]
def exchange(one, other, flags=2):
    if libc.renameat2(-100, one.encode(), -100, other.encode(), flags) == 0: return "done"
    return errno.errorcode[ctypes.get_errno()]
if sys.argv[1] == "storm":
    top, draw = sys.argv[2], random.Random(int(sys.argv[3]))
    said = [exchange(*draw.sample(names(top), 2)) for _ in range(int(sys.argv[4]))]
    print(sorted(set(said)), flush=True)
elif sys.argv[1] == "watch":
    missing = set()
    for _ in range(100000):
        missing |= {name for name in names(sys.argv[2]) if not os.path.exists(name)}
        if os.path.exists(sys.argv[3]): break
    print(sorted(missing), flush=True)
else:
    print(exchange(*sys.argv[1:3], *map(int, sys.argv[3:])), flush=True)
"#;

/// Says what is in a directory.
const SEES: &str = r#"cd $1; find . -mindepth 1 ! -path './.terral*' | sort | while read n; do
    if [ -L $n ]; then echo $n to $(readlink $n)
    elif [ -d $n ]; then echo $n
    else echo $n $(stat -c %h $n) $(cat $n); fi
done
"#;

/// What is done under `$R`, each step on another machine.
const STEPS: &str = r#"
x() { h=$1; one=$2; other=$3; shift 3; on $h "python3 $home/x.py $R/$one $R/$other $*"; }
all() { for h in h0 h1 h2; do on $h "sh $home/sees.sh $R" > $home/seen.$h; done
    cmp $home/seen.h0 $home/seen.h1; cmp $home/seen.h0 $home/seen.h2; cat $home/seen.h0; }
on h0 "mkdir -p $R/d/sub; echo zero > $R/d/a; echo below d > $R/d/sub/in"
on h1 "mkdir -p $R/e/sub; echo one, longer > $R/e/b; echo below e > $R/e/sub/in"
on h1 "ln -s ../d/a $R/e/l"
on h2 "echo two > $R/c; ln $R/c $R/d/c; echo three > $R/e/sub/two"
x h2 d/a e/b; x h0 e/b c; x h1 d/c d/a; all
x h1 d/sub e/sub; x h0 d/sub/two e/b; all
x h2 d/sub e/b; x h0 e/l d/a; x h1 e/l d/sub; all
x h1 d e; on h0 "echo four > $R/e/new"; x h2 e/new d/b; all
x h0 c none; x h1 none d; x h2 d d/b; x h0 d/b/in d; x h1 c c; x h2 c c/none; x h0 c d 3; all
"#;

fn words(machines: &Machines, under: &Path) -> String {
    fs::write(machines.home().join("x.py"), EXCHANGES).expect("writes");
    fs::write(machines.home().join("sees.sh"), SEES).expect("writes");
    format!("home={}; R={}\n", machines.home().display(), under.display())
}

fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

fn runs(machines: &Machines, options: &[&str], script: &str) -> Vec<String> {
    let words = words(machines, Path::new("/terral"));
    lines(&machines.run_with(options, &format!("{words}{script}")))
}

/// The same by the kernel, on a file system that has it.
fn by_the_kernel(machines: &Machines) -> Vec<String> {
    let shm = Path::new("/dev/shm").join(format!("exchanges-{}", std::process::id()));
    fs::create_dir_all(&shm).expect("makes");
    let words = format!("on() {{ shift; sh -c \"$*\"; }}\n{}", words(machines, &shm));
    let output = Command::new("sh").args(["-c", &format!("{words}{STEPS}")]).output();
    fs::remove_dir_all(&shm).expect("removes");
    lines(&output.expect("runs"))
}

#[test]
fn names_change_places_as_on_one_machine_whosever_they_are() {
    let Some(machines) = Machines::new(3) else { return };
    let expected = by_the_kernel(&machines);
    assert_eq!(runs(&machines, &[], STEPS), expected);
    let to = machines.home().join("to");
    fs::create_dir(&to).expect("makes");
    let seen = runs(&machines, &["--to", &to.display().to_string()], STEPS);
    assert_eq!(seen, expected);
    // What arrived is what was seen last.
    let sees = machines.home().join("sees.sh");
    let there = lines(&Command::new("sh").args([&sees, &to]).output().expect("runs"));
    assert!(there.len() > 8, "{there:?}");
    assert_eq!(there, &expected[expected.len() - there.len()..]);
}

#[test]
fn who_has_a_file_open_that_changes_places_goes_on_with_it() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    fs::create_dir(&to).expect("makes");
    for options in [&[][..], &["--to", &to.display().to_string()]] {
        for flag in ["open.h0", "open.h1", "done"] {
            let _ = fs::remove_file(machines.home().join(flag));
        }
        let seen = runs(
            &machines,
            options,
            "on h0 'mkdir /terral/d; echo zero > /terral/d/a'
            on h1 'mkdir /terral/e; echo one > /terral/e/b'
            holds() { on $1 \"exec 3>> $2; touch $home/open.$1
                until [ -e $home/done ]; do sleep 0.05; done; echo more by $1 >&3\"; }
            holds h0 /terral/d/a & holds h1 /terral/e/b &
            for h in h0 h1; do until [ -e $home/open.$h ]; do sleep 0.05; done; done
            on h2 \"python3 $home/x.py /terral/d/a /terral/e/b\"
            touch $home/done; wait
            for h in h0 h1 h2; do on $h 'cat /terral/d/a /terral/e/b'; done",
        );
        let each = ["one", "more by h1", "zero", "more by h0"];
        let expected: Vec<&str> = ["done"].into_iter().chain(each.repeat(3)).collect();
        assert_eq!(seen, expected, "{options:?}");
    }
    let read = |name: &str| fs::read_to_string(to.join(name)).expect("it arrived");
    assert_eq!(
        (read("d/a"), read("e/b")),
        ("one\nmore by h1\n".into(), "zero\nmore by h0\n".into())
    );
}

#[test]
fn of_many_that_change_places_none_is_lost_whoever_is_killed() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    fs::create_dir(&to).expect("makes");
    for options in [&[][..], &["--to", &to.display().to_string()]] {
        let _ = fs::remove_file(machines.home().join("over"));
        let seen = runs(
            &machines,
            options,
            "n=0; for d in a b c; do on h$n \"mkdir /terral/$d\"; n=$((n + 1)); done
            for d in a b c; do for n in 0 1 2 3; do
                on h$((n % 3)) \"echo born as $d/$n > /terral/$d/$n\"; done; done
            on h2 \"python3 $home/x.py watch /terral $home/over\" & watches=$!
            for h in 0 1 2; do
                on h$h \"python3 $home/x.py storm /terral $h 40\" & storms=\"$storms $!\"; done
            sleep 0.3; kill -9 $(pid_of h1); sleep 0.5; kill -9 $(pid_of h0) $(pid_of h2)
            wait $storms; touch $home/over; wait $watches
            for h in h0 h1 h2; do on $h 'cat /terral/?/?' | cksum; done | uniq | wc -l
            cat /terral/?/? | sort -u",
        );
        let names = ["a", "b", "c"].map(|d| [0, 1, 2, 3].map(|n| format!("born as {d}/{n}")));
        let done = ["['done']"; 3].into_iter().chain(["[]", "1"]).map(str::to_owned);
        let expected: Vec<String> = done.chain(names.into_iter().flatten()).collect();
        assert_eq!(seen, expected, "{options:?}");
    }
    let files = ["a", "b", "c"].into_iter().flat_map(|d| (0..4).map(move |n| format!("{d}/{n}")));
    let contents = files.map(|name| fs::read_to_string(to.join(name)).expect("it arrived"));
    assert_eq!(contents.collect::<BTreeSet<_>>().len(), 12);
}
