//! Machines that have no `terral`, or another one, are sent it: over real machines of namespaces,
//! where the directory of the build is hidden. What cannot be tried here is printed as skipped. Not
//! here: what a run over machines does that all have it (`machines`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use beside::built;
use launched::{said, until};
use namespaces::Machines;

/// A run ends within this time.
const LONG: Duration = Duration::from_secs(60);
/// What is said of machines that are sent it.
const SENDING: &str = "terral is not there: sending it";

/// Machines of which the first has `terral` in a directory that others may not have.
struct Bare {
    machines: Machines,
    program: PathBuf,
    ahead: PathBuf,
}

impl Bare {
    /// So many; `without` have nothing in that directory. Where it is sent to is each one's own.
    fn new(count: usize, without: &[usize]) -> Option<Self> {
        let machines = Machines::new(count)?;
        let (opt, ahead) = (machines.home().join("opt"), machines.home().join("ahead"));
        for directory in [&opt, &ahead] {
            fs::create_dir(directory).expect("makes");
        }
        for name in ["terral", "libterral_preload.so"] {
            fs::copy(built(name), opt.join(name)).expect("copies");
        }
        let bare = Bare { machines, program: opt.join("terral"), ahead };
        for at in 0..count {
            bare.mount(at, &bare.ahead, "mode=1777");
        }
        for at in without {
            bare.mount(*at, &opt, "mode=755");
        }
        Some(bare)
    }

    fn mount(&self, at: usize, place: &Path, options: &str) {
        let place = place.display();
        self.done(at, &format!("mount -t tmpfs -o {options} tmpfs {place}"));
    }

    fn done(&self, at: usize, script: &str) -> String {
        let output = self.machines.shell_on(at, script);
        assert!(output.status.success(), "{script}: {}", said(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A run over all of them; `$ON HOST WORDS` has its environment.
    fn command(&self, count: usize, script: &str) -> Command {
        self.command_with(count, &[], script)
    }

    /// The same, with more options.
    fn command_with(&self, count: usize, options: &[&str], script: &str) -> Command {
        let hosts: Vec<String> = (0..count).map(|at| format!("h{at}")).collect();
        let on = "on() { host=$1; shift; $ON $host \"LD_PRELOAD=$LD_PRELOAD \
                  TERRAL_INSTANCE=$TERRAL_INSTANCE TERRAL_PREFIX=$TERRAL_PREFIX sh -c '$*'\"; }\n";
        let mut command = self.machines.command(0, &self.program.display().to_string());
        let shell = self.machines.shell();
        command.env("TERRAL_RSH", &shell).env("ON", shell).env("TERRAL_AHEAD", &self.ahead);
        command.args(["run", "--hosts", &hosts.join(","), "--memory", "128M", "--ready", "0"]);
        command.args(options).args(["--", "sh", "-c", &format!("{on}{script}")]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, count: usize, script: &str) -> Output {
        descendants::ended_within(self.command(count, script).spawn().expect("starts"), LONG)
    }

    /// A run that does not begin, for this reason.
    fn fails(&self, why: &str) {
        let output = self.run(2, "echo begun");
        let said = said(&output);
        assert_eq!((output.status.code(), &*output.stdout), (Some(125), &b""[..]), "{said}");
        let line = said.lines().rfind(|line| line.starts_with("terral: h1: "));
        assert!(line.is_some_and(|line| line.contains(why)), "{why}: {said}");
        assert!(!line.is_some_and(|line| line.contains("no server came up")), "{said}");
    }

    /// What is at the place to which it is sent.
    fn sent(&self, at: usize) -> Vec<String> {
        let found = self.done(at, &format!("cd {} && find . -mindepth 1", self.ahead.display()));
        let mut found: Vec<String> = found.lines().map(str::to_owned).collect();
        found.sort_unstable();
        found
    }

    /// It has there one build, and nothing else.
    fn has_one(&self, at: usize) {
        let found = self.sent(at);
        assert!(found.len() == 4 && found[2].ends_with("/libterral_preload.so"), "{found:?}");
        assert!(found[3].ends_with("/terral") && found[1].len() > 30, "{found:?}");
    }
}

/// Each machine writes a file, and reads all.
const ALL_SEE_ALL: &str = "for at in 0 1 2 3; do on h$at \"echo from-h$at > /terral/h$at\"; done
    for at in 0 1 2 3; do on h$at \"cat /terral/h*\" | tr '\\n' ' '; done";

#[test]
fn machines_without_terral_are_sent_it_once_and_their_programs_are_served() {
    let Some(bare) = Bare::new(4, &[1, 2]) else { return };
    for (round, is_sent) in [true, false].into_iter().enumerate() {
        let output = bare.run(4, ALL_SEE_ALL);
        let (text, said) = (String::from_utf8_lossy(&output.stdout), said(&output));
        assert_eq!(text, "from-h0 from-h1 from-h2 from-h3 ".repeat(4), "{round}: {said}");
        assert_eq!(said.contains(&format!("h1, h2: {SENDING}")), is_sent, "{round}: {said}");
    }
    for at in 0..4 {
        bare.has_one(at);
        assert_eq!(bare.machines.left(at), "", "nothing stays in memory");
    }
    // What its server makes in a permanent directory is made as everywhere.
    let of_server = format!("{}/.*serve", bare.ahead.display());
    let output = bare.run(
        2,
        &format!(
            "for one in /proc/[0-9]*; do grep -qa '{of_server}' $one/cmdline 2>/dev/null &&
            grep Umask $one/status; done | sort -u"
        ),
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Umask:\t0022\n", "{}", said(&output));
    let modes = bare.done(1, &format!("stat -c %a%u {}/*", bare.ahead.display()));
    assert_eq!(modes, "7000\n");
}

#[test]
fn where_all_have_terral_nothing_is_put_anywhere() {
    let Some(bare) = Bare::new(2, &[]) else { return };
    let output = bare.run(2, "on h1 'echo x > /terral/a'; cat /terral/a; echo $LD_PRELOAD");
    let library = bare.program.with_file_name("libterral_preload.so");
    let text = format!("x\n{}\n", library.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{}", said(&output));
    assert!((0..2).all(|at| bare.sent(at).is_empty()));
}

#[test]
fn another_build_at_the_same_path_is_found_out_and_ours_is_sent() {
    let Some(bare) = Bare::new(2, &[1]) else { return };
    let place = bare.program.parent().expect("a directory").display().to_string();
    let bent = bare.machines.home().join("bent");
    let note = String::from_utf8(
        Command::new("readelf").arg("-n").arg(&bare.program).output().expect("readelf").stdout,
    );
    let id = note.expect("text").split("Build ID: ").nth(1).expect("an id")[..16].to_owned();
    let id = (0..8).map(|at| u8::from_str_radix(&id[at * 2..at * 2 + 2], 16).expect("digits"));
    let id: Vec<u8> = id.collect();
    let mut bytes = fs::read(&bare.program).expect("reads");
    let at = bytes.windows(8).position(|window| window == id).expect("it is there");
    bytes[at] ^= 1;
    fs::write(&bent, bytes).expect("writes");
    let library = built("libterral_preload.so");
    let older = "printf '#!/bin/sh\\necho old >&2; exit 2\\n' >";
    for other in [
        format!("cp {} {place}/terral; cp {} {place}", bent.display(), library.display()),
        format!("{older} {place}/terral; cp {} {place}", library.display()),
        format!("cp {} {place}/terral; rm {place}/*.so", built("terral").display()),
    ] {
        bare.done(1, &format!("rm -rf {}/*; {other}; chmod 755 {place}/*", bare.ahead.display()));
        let output = bare.run(2, "on h1 'echo x > /terral/a'; cat /terral/a");
        let said = said(&output);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n", "{other}: {said}");
        assert!(said.contains(SENDING) && !said.contains("old"), "{other}: {said}");
        bare.has_one(1);
    }
}

#[test]
fn a_place_that_somebody_else_has_made_is_refused_and_nothing_in_it_executed() {
    let Some(bare) = Bare::new(2, &[1]) else { return };
    let (ahead, home) = (bare.ahead.display(), bare.machines.home().display());
    // As it would be found: the right build, that is another one.
    let right = bare.run(1, "true");
    assert!(right.status.success(), "{}", said(&right));
    let sent = bare.run(2, "true");
    assert!(sent.status.success(), "{}", said(&sent));
    let trap = format!("printf '#!/bin/sh\\ntouch {home}/executed\\n'");
    bare.done(1, &format!("for one in {ahead}/*/*/terral; do {trap} > $one; done"));
    let place = format!("{ahead}/terral-0");
    let alone = "not a directory of yours alone";
    for (how, why) in [
        (format!("chown -R 65534 {place}"), alone),
        (format!("chown 0 {place}; chmod 770 {place}"), alone),
        (format!("mv {place} {ahead}/real; chmod 700 {ahead}/real; ln -s real {place}"), alone),
        (format!("rm {place}; mv {ahead}/real {place}; chmod 777 {ahead}"), "can be replaced"),
        (format!("chmod 1777 {ahead}; chown 65534 {ahead}"), "can be replaced"),
    ] {
        bare.done(1, &how);
        bare.fails(why);
        assert!(!bare.machines.home().join("executed").exists(), "{how}");
    }
}

#[test]
fn a_machine_on_which_it_cannot_be_is_named_with_what_to_do_and_nothing_stays() {
    let Some(bare) = Bare::new(2, &[1]) else { return };
    let home = bare.machines.home();
    let place = bare.ahead.clone();
    let again = |options: &str| {
        bare.done(1, &format!("umount {}", place.display()));
        bare.mount(1, &place, options);
    };
    for (options, why) in [
        ("mode=1777,size=8M", "full after"),
        ("mode=1777,noexec", "noexec?"),
        ("mode=1777,ro", "cannot be made there"),
        ("mode=1777,nr_inodes=2", "nothing can be made in it"),
    ] {
        again(options);
        bare.fails(why);
        assert!(bare.sent(1).iter().all(|one| one == "./terral-0"), "{:?}", bare.sent(1));
    }
    again("mode=1777");
    for (program, text, why) in [
        ("uname", "echo aarch64", "a machine of kind aarch64, and this one is"),
        ("id", "echo 1234", "your user id is 1234 there"),
        // An older C library says this.
        (
            "head",
            "/bin/dd status=none iflag=fullblock bs=$2 count=1 > /dev/null
            /bin/dd status=none if=/dev/zero of=$0.zeros bs=$2 count=1
            printf '#!/bin/sh\\necho version GLIBC_2.99 not found >&2; exit 1\\n' |
            /bin/dd status=none conv=notrunc of=$0.zeros; cat $0.zeros",
            "does not run there: version GLIBC_2.99 not found: build it on the machine",
        ),
    ] {
        let stub = home.join(program);
        fs::write(&stub, format!("#!/bin/sh\n{text}\n")).expect("writes");
        fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("sets");
        bare.done(1, &format!("mount --bind {} /usr/bin/{program}", stub.display()));
        bare.fails(why);
        bare.done(1, &format!("umount /usr/bin/{program}"));
        assert!(bare.sent(1).iter().all(|one| one == "./terral-0"), "{:?}", bare.sent(1));
    }
}

/// What stands for ssh, with a filter before its standard input.
fn filtered(bare: &Bare, name: &str, filter: &str) -> PathBuf {
    let path = bare.machines.home().join(name);
    let text = format!("#!/bin/sh\n{filter} | {} \"$@\"\n", bare.machines.shell().display());
    fs::write(&path, text).expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("sets");
    path
}

#[test]
fn what_does_not_arrive_as_it_was_sent_is_not_used() {
    let Some(bare) = Bare::new(2, &[1]) else { return };
    let bend = "import os, sys\nn = 0\nwhile True:\n    b = bytearray(os.read(0, 65536))\n    \
                if not b: break\n    n += len(b)\n    if n > 30 << 20 and n - len(b) < 30 << 20: \
                b[0] ^= 1\n    os.write(1, b)\n";
    fs::write(bare.machines.home().join("bend.py"), bend).expect("writes");
    let filter = format!("/usr/bin/python3 {}/bend.py", bare.machines.home().display());
    let shell = filtered(&bare, "bending", &filter);
    let mut command = bare.command(2, "echo begun");
    command.env("TERRAL_RSH", shell);
    let output = descendants::ended_within(command.spawn().expect("starts"), LONG);
    assert!(said(&output).contains("not what was sent: try again"), "{}", said(&output));
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(bare.sent(1), ["./terral-0"]);
}

#[test]
fn a_run_that_is_killed_while_it_sends_leaves_nothing_and_the_next_one_sends() {
    let Some(bare) = Bare::new(2, &[1]) else { return };
    let slow = "import os, time\nwhile True:\n    b = os.read(0, 65536)\n    \
                if not b: break\n    os.write(1, b); time.sleep(0.01)\n";
    fs::write(bare.machines.home().join("slow.py"), slow).expect("writes");
    let filter = format!("/usr/bin/python3 {}/slow.py", bare.machines.home().display());
    let shell = filtered(&bare, "slowly", &filter);
    let mut command = bare.command(2, "echo begun");
    let mut run = command.env("TERRAL_RSH", shell).spawn().expect("starts");
    until("a part has arrived", || bare.sent(1).iter().any(|one| one.ends_with("/terral")));
    descendants::send(run.id() as i32, rustix::process::Signal::KILL);
    run.wait().expect("was killed");
    until("that is taken away", || bare.sent(1) == ["./terral-0"]);
    let output = bare.run(2, "on h1 'echo x > /terral/a'; cat /terral/a");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n", "{}", said(&output));
    bare.has_one(1);
}

#[test]
fn two_runs_that_send_at_once_both_go_on() {
    let Some(bare) = Bare::new(2, &[1]) else { return };
    let script = "on h1 'echo x > /terral/a'; cat /terral/a";
    let runs = [0, 1].map(|_| bare.command(2, script).spawn().expect("starts"));
    for run in runs {
        let output = descendants::ended_within(run, LONG);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "x\n", "{}", said(&output));
    }
    bare.has_one(1);
}

#[test]
fn who_owes_something_where_terral_was_sent_says_where_that_is() {
    let Some(bare) = Bare::new(2, &[1]) else { return };
    let to = bare.machines.home().join("to");
    fs::create_dir(&to).expect("makes");
    let away = bare.machines.home().join("away");
    let script = format!("on h1 'echo x > /terral/a'; mv {} {}", to.display(), away.display());
    let options = ["--wait-timeout", "300ms", "--to", &to.display().to_string()];
    let run = bare.command_with(2, &options, &script).spawn().expect("starts");
    let output = descendants::ended_within(run, LONG);
    assert_eq!(output.status.code(), Some(74), "{}", said(&output));
    fs::rename(away, &to).expect("renames");
    let words = said(&output);
    let advice = words.split('`').find(|words| words.contains(" recover ")).expect("an advice");
    assert!(advice.starts_with(&bare.ahead.display().to_string()), "{words}");
    bare.done(1, advice);
    assert_eq!(fs::read_to_string(to.join("a")).expect("it arrived"), "x\n");
}
