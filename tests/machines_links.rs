//! Files with several names over several machines, as programs make them: real servers, real
//! programs, a real network between namespaces. Each name is the same file for all, which counts
//! its names right, and stays as long as it has one.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use beside::on_path;
use launched::said;
use namespaces::Machines;

fn ran(machines: &Machines, options: &[&str], script: &str) -> Vec<String> {
    let output = machines.run_with(options, script);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Names of one file come and go on all machines; what each of them sees of it.
const NAMES: &str = "
    links() { for h in h0 h1 h2; do on $h \"stat -c %h /terral/$1\"; done | uniq; }
    mkdir d; echo one > d/a; links d/a
    on h1 'ln /terral/d/a /terral/b'; links d/a
    on h2 'mkdir /terral/e; ln /terral/b /terral/e/c'; links b
    for h in h0 h1 h2; do on $h 'cd /terral; stat -c %i d/a b e/c' | uniq | wc -l; done | uniq
    on h2 'ln /terral/d/a /terral/b' 2> /dev/null || echo it is there
    on h2 'rm /terral/d/a'; links b
    on h1 'python3 -c \"import os; os.rename(\\\"/terral/b\\\", \\\"/terral/e/c\\\")\"'; links b
    on h2 'echo two > /terral/f; mv -f /terral/f /terral/b'; links e/c
    on h1 'cat /terral/b /terral/e/c'; links b
    on h1 'ln /terral/e/c /terral/g; mv /terral/e/c /terral/h'; links h
    on h2 'mv -f /terral/g /terral/b; cat /terral/b /terral/h'; links b
    on h1 'exec 3< /terral/b; rm /terral/b; rm /terral/h; cat <&3'; ls -A
";

const SEEN: [&str; 19] = [
    "1",
    "2",
    "3",
    "1",
    "it is there",
    "2",
    "2",
    "1",
    "two",
    "one",
    "1",
    "2",
    "one",
    "one",
    "2",
    "one",
    "d",
    "e",
    "",
];

#[test]
fn names_of_one_file_that_come_and_go_everywhere_are_counted_by_all() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    for options in [&[][..], &["--to", &to.display().to_string()]] {
        fs::create_dir_all(&to).expect("makes");
        let seen = ran(&machines, options, NAMES);
        assert_eq!(seen, SEEN[..SEEN.len() - 1], "{options:?}");
    }
}

fn links(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |is| is.nlink())
}

#[test]
fn trees_that_are_copied_by_names_alone_arrive_so() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    fs::create_dir(&to).expect("makes");
    let seen = ran(
        &machines,
        &["--to", &to.display().to_string()],
        "for h in h0 h1 h2; do on $h \"mkdir -p /terral/day1/$h
            for i in 1 2 3 4 5; do echo $h-\\$i > /terral/day1/$h/\\$i; done\"; done
        on h1 'cp -al /terral/day1 /terral/day2'; cp -al day2 day3
        for h in h0 h1 h2; do on $h 'cat /terral/day3/*/*' | cksum; done | uniq | wc -l
        stat -c %h day1/*/* day2/*/* day3/*/* | sort | uniq -c | tr -s ' '
        on h2 'rm -r /terral/day1'
        on h0 'echo new > /terral/t; mv -f /terral/t /terral/day3/h1/1'
        on h1 'stat -c %h /terral/day2/*/* /terral/day3/*/*' | sort | uniq -c | tr -s ' '
        on h2 'cat /terral/day2/h1/1 /terral/day3/h1/1'",
    );
    assert_eq!(seen, ["1", " 45 3", " 2 1", " 28 2", "h1-1", "new"]);
    for (name, count) in [("day2/h0/1", 2), ("day3/h2/5", 2), ("day2/h1/1", 1), ("day1", 0)] {
        assert_eq!(links(&to.join(name)), count, "{name}");
    }
    let inode = |name: &str| fs::metadata(to.join(name)).expect("it is there").ino();
    assert_eq!(inode("day2/h2/3"), inode("day3/h2/3"));
}

#[test]
fn programs_that_link_find_what_they_have_linked() {
    let Some(machines) = Machines::new(3) else { return };
    if !["git", "rsync"].iter().all(|program| on_path(program)) {
        return;
    }
    let seen = ran(
        &machines,
        &[],
        "export HOME=/nowhere GIT_CONFIG_NOSYSTEM=1; git init -q r; cd r
        git config user.name n; git config user.email e
        for i in 1 2 3; do echo $i > $i; git add .; git commit -qm $i; done; cd ..
        on h1 'HOME=/nowhere git clone -ql /terral/r /terral/c'
        on h2 'cd /terral/c; HOME=/nowhere git -c safe.directory=/terral/c fsck --strict; cat 1 2 3'
        find c/.git/objects -type f -links 2 | wc -l
        mkdir s; echo s > s/one; on h2 'ln /terral/s/one /terral/s/two'
        on h1 'rsync -aH /terral/s/ /terral/t'; stat -c '%h %n' t/*
        rsync -a --link-dest=/terral/s s/ u; on h2 'stat -c %h /terral/u/one'",
    );
    assert_eq!(seen, ["1", "2", "3", "9", "2 t/one", "2 t/two", "4"]);
}

/// Says how often it has made and removed a further name of each file.
const CHURNS: &str = r#"
import os, sys
me, files = sys.argv[1], int(sys.argv[2])
for i in range(files):
    os.link(f"/terral/d/{i}", f"/terral/d/{i}.{me}")
    os.rename(f"/terral/d/{i}.{me}", f"/terral/{me}.{i}")
    if i % 3 == 0: os.unlink(f"/terral/{me}.{i}")
"#;

#[test]
fn servers_that_are_killed_meanwhile_forget_no_name() {
    let Some(machines) = Machines::new(3) else { return };
    fs::write(machines.home().join("churns.py"), CHURNS).expect("writes");
    let home = machines.home().display();
    let to = machines.home().join("to");
    fs::create_dir(&to).expect("makes");
    let seen = ran(
        &machines,
        &["--to", &to.display().to_string()],
        &format!(
            "mkdir d; for h in h0 h1 h2; do on $h \"for i in \\$(seq $((${{h#h}} * 20)) \
             $((${{h#h}} * 20 + 19))); do echo \\$i > /terral/d/\\$i; done\"; done
            for h in h0 h1 h2; do on $h \"python3 {home}/churns.py $h 60\" & done
            sleep 0.3; kill -9 $(pid_of h1); sleep 0.5; kill -9 $(pid_of h0) $(pid_of h2)
            wait
            for h in h0 h1 h2; do on $h 'stat -c %h /terral/d/*'; done | sort | uniq -c | tr -s ' '
            on h2 'cat /terral/d/* /terral/h?.*' | sort -n | uniq -c | wc -l"
        ),
    );
    assert_eq!(seen, [" 60 1", " 120 4", "60"]);
    assert_eq!(links(&to.join("d/1")), 4);
}

/// A machine's file loses one of its names and gets it again by the other, at once, on another
/// machine. Were one more counted, its bytes would stay: more than the memory of its machine.
const TURNS: &str = "
    mkdir d
    for i in $(seq 8); do
        on h1 'head -c 48M /dev/zero > /terral/d/a && ln /terral/d/a /terral/d/b'
        touch d/own
        python3 -c 'import os; os.unlink(\"d/b\"); os.rename(\"d/a\", \"d/b\")'
        sleep 0.5; stat -c %h d/b; rm d/b; sleep 0.5
    done
";

#[test]
fn a_name_that_goes_and_comes_again_is_counted_once_and_the_bytes_go_with_it() {
    let Some(machines) = Machines::new(2) else { return };
    assert_eq!(ran(&machines, &[], TURNS), ["1"; 8]);
}
