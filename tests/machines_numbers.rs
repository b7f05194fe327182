//! What `st_ino` says over several machines, as programs ask: real servers, real programs, a real
//! network between namespaces. A file has one number, on all of them, for the whole run, and no
//! other file has it.
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::fs;

use beside::on_path;
use launched::said;
use namespaces::Machines;

fn ran(machines: &Machines, options: &[&str], script: &str) -> Vec<String> {
    let output = machines.run_with(options, script);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Says the number of all there is, asked for in each way, and which are the same.
const NUMBERS: &str = r#"
import os, stat, sys
all = {}
def see(path, *numbers):
    numbers = {n for n in numbers if n is not None}
    assert len(numbers) == 1, (path, numbers)
    all[path] = numbers.pop()
def opened(path, how=0):
    fd = os.open(path, os.O_RDONLY | how)
    number = os.fstat(fd).st_ino
    os.close(fd)
    return number
root = "/terral"
see(root, os.stat(root).st_ino, os.lstat(root).st_ino, opened(root))
for above, directories, files in os.walk(root):
    for entry in os.scandir(above):
        path, is_ = entry.path, os.lstat(entry.path)
        held = None
        if stat.S_ISREG(is_.st_mode) or stat.S_ISDIR(is_.st_mode):
            held = opened(path)
        if stat.S_ISFIFO(is_.st_mode):
            held = opened(path, os.O_NONBLOCK)
        see(path, entry.inode(), is_.st_ino, held)
for path in sorted(all):
    print(path, all[path])
if len(sys.argv) > 1:
    names = [path for path in all if not path.endswith(sys.argv[1])]
    assert len({all[path] for path in names}) == len(names), "two have one number"
"#;

/// What each machine makes, in directories of all of them.
const MADE: &str = r#"
import os, socket, sys
me = sys.argv[1]
os.makedirs(f"/terral/{me}/below", exist_ok=True)
for where in ["d", f"{me}/below"]:
    at = f"/terral/{where}/{me}"
    for i in range(5):
        open(f"{at}-{i}", "w").write(f"{me} {i}")
    os.link(f"{at}-0", f"{at}-0.again")
    os.symlink("nowhere", f"{at}-link")
    os.mkfifo(f"{at}-fifo")
    os.mkdir(f"{at}-dir")
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(f"{at}-sock")
"#;

#[test]
fn all_machines_say_one_number_of_each_file_for_the_whole_run() {
    let Some(machines) = Machines::new(3) else { return };
    let (home, to) = (machines.home(), machines.home().join("to"));
    fs::write(home.join("numbers.py"), NUMBERS).expect("writes");
    fs::write(home.join("made.py"), MADE).expect("writes");
    let home = home.display();
    let script = format!(
        "all() {{ for h in h0 h1 h2; do on $h \"python3 {home}/numbers.py $1\" > {home}/$h; done
            cmp {home}/h0 {home}/h1 && cmp {home}/h0 {home}/h2 && wc -l < {home}/h1; }}
        stays() {{ for h in h0 h1 h2; do on $h \"python3 {home}/numbers.py\" | diff {home}/h0 - \
            && echo same; done; }}
        was() {{ echo \"/terral/$2 $(on h0 \"stat -c %i /terral/$1\")\" | grep -cxf - {home}/h0; }}
        mkdir d; on h1 'mkdir /terral/e'
        for h in h1 h2 h0; do on $h \"python3 {home}/made.py $h\"; done
        all .again
        kill -9 $(pid_of h1); on h1 'ls /terral' > {home}/listed
        kill -9 $(pid_of h0) $(pid_of h2); ls > {home}/listed
        stays
        sleep 6; stays
        on h2 'chmod 700 /terral/d /terral/h1; touch /terral/d/h0-1; echo more >> /terral/d/h1-2'
        stays
        for h in h0 h1 h2; do on $h 'cd /terral; find . -samefile h1/below/h1-0 | sort; \
            stat -c %i d/h2-0 | xargs find . -inum | sort' | paste -sd' '; done \
            | uniq -c | tr -s ' '
        on h1 'mv /terral/d/h2-1 /terral/h0/; mv /terral/h2 /terral/e/'
        was h0/h2-1 d/h2-1; was e/h2/below/h2-fifo h2/below/h2-fifo
        all .again"
    );
    // The root, `d`, `e`, two for each machine, and ten for each in two places.
    let count = (1 + 2 + 6 + 3 * 2 * 10).to_string();
    let mut must = vec![count.as_str()];
    must.extend(["same"; 9]);
    must.push(" 3 ./h1/below/h1-0 ./h1/below/h1-0.again ./d/h2-0 ./d/h2-0.again");
    must.extend(["1", "1", &count]);
    for options in [&[][..], &["--to", &to.display().to_string()]] {
        fs::create_dir_all(&to).expect("makes");
        let seen = ran(&machines, options, &script);
        assert_eq!(seen, must, "{options:?}");
    }
}

#[test]
fn what_was_in_the_permanent_directory_before_has_one_number_on_all_machines() {
    let Some(machines) = Machines::new(3) else { return };
    let to = machines.home().join("to");
    fs::create_dir_all(to.join("old/below")).expect("makes");
    for i in 0..20 {
        fs::write(to.join(format!("old/{i}")), "old").expect("writes");
        fs::write(to.join(format!("old/below/{i}")), "old").expect("writes");
    }
    let seen = ran(
        &machines,
        &["--to", &to.display().to_string()],
        "numbers() { on $1 \"stat -c '%n %i' /terral /terral/old $2\"; }
        same() { for h in h0 h1 h2; do numbers $h \"$1\" | cksum; done | uniq | wc -l; }
        on h1 'stat /terral/old/[0-4] > /terral/out'; same '/terral/old/[0-9]'
        on h2 'cat /terral/old/*1 /terral/old/below/3 > /terral/out'
        same '/terral/old/* /terral/old/below /terral/old/below/*'
        on h2 'cd /terral/old/below; rm 1; echo new > 1; echo more >> 2; mv 3 ../three; ls' | wc -l
        same '/terral/old/* /terral/old/below/*'
        for h in h0 h1 h2; do on $h 'cd /terral/old; ls -ai . below' | cksum; done | uniq | wc -l
        for h in h0 h1 h2; do on $h \"$TERRAL stat /terral/old/below/1\" | grep -o 'inode [0-9]*'
            on $h 'stat -c \"inode %i\" /terral/old/below/1'; done | uniq | wc -l",
    );
    assert_eq!(seen, ["1", "1", "19", "1", "1", "1"]);
}

#[test]
fn programs_that_go_by_numbers_find_what_belongs_together() {
    let Some(machines) = Machines::new(3) else { return };
    if !["git", "rsync", "tar"].iter().all(|program| on_path(program)) {
        return;
    }
    let seen = ran(
        &machines,
        &[],
        "mkdir d; echo a > d/a; on h1 'ln /terral/d/a /terral/d/b; echo c > /terral/d/c'
        on h2 'ln /terral/d/c /terral/d/e; ln /terral/d/b /terral/d/f'
        on h2 'tar -C /terral -cf /terral/t d; tar -tvf /terral/t' | grep -c 'link to'
        on h1 'mkdir /terral/out; tar -C /terral/out -xf /terral/t; stat -c %h /terral/out/d/f'
        on h1 'cp -a /terral/d /terral/copied'; stat -c %h copied/a copied/c
        on h2 'rsync -aH /terral/copied/ /terral/synced'; on h0 'stat -c %h /terral/synced/e'
        on h2 'du -s --apparent-size -B1 /terral/d/a /terral/d/b /terral/d/f' | wc -l
        on h1 'cp /terral/d/a /terral/d/b' 2>&1 | grep -c 'same file'
        export HOME=/nowhere GIT_CONFIG_NOSYSTEM=1; git init -q r; cd r
        git config user.name n; git config user.email e
        for i in $(seq 20); do echo $i > $i; done; git add .; git commit -qm all; cd ..
        on h1 'HOME=/nowhere git clone -q /terral/r /terral/c'
        for h in h0 h1 h2; do on $h 'cd /terral/c; HOME=/nowhere; export HOME
            git -c safe.directory=/terral/c diff-files | wc -l'; done | uniq",
    );
    assert_eq!(seen, ["3", "3", "3", "2", "2", "1", "1", "0"]);
}
