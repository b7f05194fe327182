//! Where new files and objects are, over several machines: real servers and programs, a real
//! network between namespaces. Not here: objects whose machine is named (`machines_objects`).
#![allow(clippy::print_stdout)] // What is skipped is said.
#![cfg(not(loom))]

mod beside;
mod descendants;
mod launched;
mod namespaces;

use std::path::PathBuf;

use beside::by_python;
use launched::said;
use namespaces::Machines;

/// A program in Python of a test's own.
fn program(machines: &Machines, text: &str) -> String {
    let path: PathBuf = machines.home().join("placed.py");
    std::fs::write(&path, text).expect("writes");
    by_python(&path)
}

/// Fills a machine, and has others choose.
const LEAST: &str = r#"
import os, sys, terral
me = terral.connect()
if sys.argv[1] == "make":
    terral.Container.make("parts", connection=me).create(1).close()
elif sys.argv[1] == "fill":
    made = terral.Container.named("parts", connection=me)
    with made.create(2) as it:
        it.write(bytes(150 << 20))
else:
    made = terral.Container.named("parts", connection=me)
    on = []
    for number in range(12):
        with made.create(1000 * (int(sys.argv[2]) + 1) + number, on=terral.LEAST_LOADED) as it:
            it.write(b"some")
            on.append(it.address.server)
    print(len(on), set(on) <= {0, 2}, me.least_loaded() in (0, 2))
"#;

#[test]
fn objects_go_where_there_is_more_room_of_two_machines() {
    let Some(machines) = Machines::new(3) else { return };
    let program = program(&machines, LEAST);
    let script = format!(
        "{program} make; on h1 {program} fill
        for at in 0 1 2; do on h$at {program} choose $at; done"
    );
    let output = machines.run_with(&[], &script);
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out, "12 True True\n".repeat(3), "{}", said(&output));
}

/// What programs of a machine do that keeps nothing: files, directories, objects.
const COMPUTES: &str = r#"
import errno, os, sys, terral
where = os.environ["TERRAL_PREFIX"]
me = terral.connect()
def put(path, text, how=os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o644):
    file = os.open(path, how, mode)
    os.write(file, text)
    os.close(file)
if sys.argv[1] == "make":
    terral.Container.make("parts", connection=me).create(1).close()
    os.mkdir(where + "/shared")
elif sys.argv[1] == "fill":
    for place in (where, where + "/shared", where + "/own/deep"):
        os.makedirs(place, exist_ok=True)
        put(place + "/a", b"first and longer")
        put(place + "/a", b"second")
        put(place + "/once", b"once", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        try:
            put(place + "/once", b"", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            print("there", end=" ")
        put(place + "/gone", b"x")
        os.unlink(place + "/gone")
        put(place + "/from", b"moved")
        os.rename(place + "/from", place + "/to")
    print(oct(os.stat(where + "/once").st_mode & 0o777), end=" ")
    for umask in (0o077,):
        os.umask(umask)
        put(where + "/mine", b"mine")
        print(oct(os.stat(where + "/mine").st_mode & 0o777))
    try:
        os.close(os.open(where, os.O_WRONLY | os.O_TMPFILE))
        print("unnamed")
    except OSError as error:
        print(errno.errorcode[error.errno])
    made = terral.Container.named("parts", connection=me)
    with made.create(7) as it:
        it.write(b"object")
        print(it.address.server in (0, 1))
    try:
        made.create(8, on=2)
    except OSError as error:
        print(errno.errorcode[error.errno], [one.number for one in me.servers()])
else:
    for place in (where, where + "/shared", where + "/own/deep"):
        texts = [open(place + "/" + name).read() for name in ("a", "once", "to")]
        print(sorted(set(os.listdir(place)) - {"own", "shared"}), texts)
    made = terral.Container.named("parts", connection=me)
    print([made.open(at).read(9) for at in made if at.id == 7])
"#;

/// A machine without the role storage has nothing of what its programs have closed: when it is
/// lost, all of it is there, and when it leaves there is nothing to bring.
fn computes(end: &str, ended: &str) {
    let Some(machines) = Machines::new(3) else { return };
    let program = program(&machines, COMPUTES);
    let script = format!(
        "{program} make; on h2 {program} fill
        {end}
        {program} look; on h1 {program} look
        $TERRAL status --instance machines | grep -E '^  (storage|lost|restored)' | cut -c1-60"
    );
    let output = machines.run_with(&["--storage-hosts", "h0,h1"], &script);
    let texts = "['second', 'once', 'moved']\n";
    let first = format!("['a', 'mine', 'once', 'to'] {texts}");
    let there = format!("['a', 'once', 'to'] {texts}");
    let look = format!("{first}{there}{there}[b'object']\n");
    let expected = format!(
        "there there there 0o444 0o600\nENOTSUP\nTrue\nENOTSUP [0, 1]\n\
         {ended}{look}{look}  storage   new files are kept by h0, h1 (member 1)\n"
    );
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out, expected, "{}", said(&output));
}

#[test]
fn a_compute_machine_that_is_lost_takes_nothing_with_it() {
    let lost = "server=$(pid_of h2); kill -9 $(ps -o ppid= -p $server) $server";
    computes(&format!("{lost}; $TERRAL fence h2 --dead"), "");
}

/// Files by pattern, and what is refused.
const PATTERNS: &str = r#"
import os, sys
for path in sys.argv[1:]:
    with open(os.environ["TERRAL_PREFIX"] + "/" + path, "w") as file:
        file.write(path)
"#;

/// On which machines files are, which all have the same length.
#[test]
fn new_files_are_created_where_a_pattern_says() {
    let Some(machines) = Machines::new(3) else { return };
    let program = program(&machines, PATTERNS);
    let script = format!(
        "mkdir out near; echo old > out/old
        $TERRAL policy set '/terral/out/*' layout=one:h2
        $TERRAL policy set 'out/here*' layout=here
        $TERRAL policy set 'near/*' layout=least-loaded
        $TERRAL policy set 'near/*' layout=one:h9 2>&1 | head -1
        $TERRAL policy set 'near/*' layout=stripy 2>&1 | grep -c 'one:HOST|stripe'
        $TERRAL policy list
        on h1 {program} out/a out/here1 near/b; {program} out/c out/old free
        for file in out/a out/c out/old out/here1 free; do
            echo $file $(stat -c %i $file) $(cat $file)
        done | awk '{{ print $1, int($2 / 2 ^ 50), $3 }}'
        cat near/b; echo
        server=$(pid_of h1); kill -9 $(ps -o ppid= -p $server) $server
        $TERRAL fence h1 --dead
        on h2 cat /terral/out/a; echo; on h2 cat /terral/out/here1 2>&1 | grep -c 'Input/output'
        $TERRAL policy unset 'out/*'; $TERRAL policy list | head -1"
    );
    let output = machines.run_with(&[], &script);
    let expected = "h9: no machine of this run\n1\n\
                    out/*  layout=one:h2\nout/here*  layout=here\nnear/*  layout=least-loaded\n\
                    out/a 2 out/a\nout/c 2 out/c\nout/old 0 out/old\nout/here1 1 out/here1\n\
                    free 0 free\nnear/b\nout/a\n1\nout/here*  layout=here\n";
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out.replace("terral: ", ""), expected, "{}", said(&output));
}

/// A striped object: written and read on other machines, whole and in parts.
const STRIPED: &str = r#"
import errno, os, sys, terral
me, stripe = terral.connect(), 64 << 10
def bytes_of(at, length):
    return bytes((i * 7 + i // 251) % 256 for i in range(at, at + length))
if sys.argv[1] == "make":
    made = terral.Container.make("parts", connection=me)
    with made.create_striped(0, stripe, id=5) as it:
        it.write(bytes_of(0, 10 * stripe + 77))
        it.write_vector([(stripe - 3, 6), (5 * stripe - 1, 2)], b"abcdefgh")
        it.set_attribute("unit", "K")
    try:
        made.create_striped(2, stripe, id=5)
    except FileExistsError:
        print("there", end=" ")
    try:
        made.create_striped(2, 1000)
    except OSError as error:
        print(errno.errorcode[error.errno])
elif sys.argv[1] == "look":
    made = terral.Container.named("parts", connection=me)
    want = bytearray(bytes_of(0, 10 * stripe + 77))
    want[stripe - 3:stripe + 3], want[5 * stripe - 1:5 * stripe + 1] = b"abcdef", b"gh"
    with made.open((5, 0)) as it:
        whole = it.read(11 * stripe)
        piece = it.read(3 * stripe, at=stripe // 2)
        into = bytearray(2 * stripe)
        count = it.readinto_vector([(9 * stripe, stripe), (10 * stripe, stripe)], into)
        print(whole == want, piece == want[stripe // 2:stripe // 2 + 3 * stripe], end=" ")
        print(count == stripe + 77, into == want[9 * stripe:] + bytes(stripe - 77), end=" ")
        print(it.attribute("unit"), it.attributes(), tuple(it.address))
    print([tuple(at) for at in made], made.stat((5, 0)).size_bytes == len(want))
elif sys.argv[1] == "change":
    made = terral.Container.named("parts", connection=me)
    with made.open((5, 0), writes=True) as it:
        it.truncate(4 * stripe + 5)
        it.punch(stripe, 2 * stripe)
        it.write(b"end", at=7 * stripe)
        print(it.read(8 * stripe) == bytes_of(0, stripe - 3) + b"abc" + bytes(2 * stripe)
            + bytes_of(3 * stripe, stripe + 5) + bytes(3 * stripe - 5) + b"end", end=" ")
        request = it.submit_read([(7 * stripe, 3)], bytearray(3))
        print(request.wait(), end=" ")
        for call in (it.update_id, lambda: made.link((5, 0), "name"), lambda: made.copy((5, 0), 1)):
            try:
                call()
            except OSError as error:
                print(errno.errorcode[error.errno], end=" ")
        try:
            made.seal((5, 0))
        except OSError as error:
            print(errno.errorcode[error.errno], end=" ")
    # Its home may have it open for a moment longer.
    while True:
        try:
            made.seal((5, 0))
            break
        except OSError as error:
            assert error.errno == errno.EBUSY, error
    try:
        made.open((5, 0), writes=True)
    except PermissionError:
        print("sealed")
elif sys.argv[1] == "remove":
    made = terral.Container.named("parts", connection=me)
    made.discard((5, 0))
    print(list(made))
    with made.create_striped(2, stripe, id=5) as it:
        print(it.read(9) == b"", tuple(it.address))
elif sys.argv[1] == "lost":
    made = terral.Container.named("parts", connection=me)
    with made.open((5, 0)) as it:
        print(it.read(9) == bytes_of(0, 9), end=" ")
        for at in (2 * stripe, stripe - 4):
            try:
                print(len(it.read(8, at=at)))
            except OSError as error:
                print(errno.errorcode[error.errno])
"#;

#[test]
fn a_striped_object_is_one_object_on_all_machines() {
    let Some(machines) = Machines::new(3) else { return };
    let program = program(&machines, STRIPED);
    let script = format!(
        "{program} make
        for at in h0 h1 h2; do on $at {program} look; done
        for at in 0 1 2; do stat -c %i .terral-objects/parts/$at/*; done | \
            awk '{{ print int($1 / 2 ^ 50) }}'
        on h2 {program} change; {program} remove
        for at in 0 1 2; do ls -A .terral-objects/parts/$at | wc -l; done"
    );
    let output = machines.run_with(&[], &script);
    let look = "True True True True K ['unit'] (5, 0)\n[(5, 0)] True\n".repeat(3);
    let expected = format!(
        "there EINVAL\n{look}0\n1\n2\n\
         True 3 ENOTSUP ENOTSUP ENOTSUP EBUSY sealed\n[]\nTrue (5, 0)\n1\n1\n0\n"
    );
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out, expected, "{}", said(&output));
}

#[test]
fn what_a_lost_machine_had_of_a_striped_object_is_an_error_and_never_zeros() {
    let Some(machines) = Machines::new(3) else { return };
    let program = program(&machines, STRIPED);
    let script = format!(
        "{program} make
        server=$(pid_of h2); kill -9 $(ps -o ppid= -p $server) $server
        $TERRAL fence h2 --dead
        {program} lost; on h1 {program} lost"
    );
    let output = machines.run_with(&[], &script);
    let out = String::from_utf8_lossy(&output.stdout);
    let expected = format!("there EINVAL\n{}", "True EIO\n8\n".repeat(2));
    assert_eq!(out, expected, "{}", said(&output));
}

/// Creates striped objects until it is killed, or creates and removes them.
const KILLED: &str = r#"
import errno, sys, terral
me, stripe = terral.connect(), 64 << 10
made = terral.Container.named("parts", connection=me)
if sys.argv[1] == "on":
    number = int(sys.argv[2]) << 32
    print("begins", flush=True)
    while True:
        number += 1
        with made.create_striped(3, stripe, id=number) as it:
            it.write(bytes([number % 251 + 1]) * (3 * stripe))
        if number % 3 == 0:
            made.discard(it.address)
elif sys.argv[1] == "check":
    seen = list(made)
    for at in seen:
        with made.open(at) as it:
            data = it.read(4 * stripe)
            whole = bytes([at.id % 251 + 1]) * (3 * stripe)
            # One is just being written.
            assert set(data) <= {0, whole[0]} and len(data) <= len(whole), at
    print(len(seen) > 0)
else:
    won = 0
    for number in range(1, 41):
        try:
            with made.create_striped(3, stripe, id=number) as it:
                it.write(bytes([number % 251 + 1]) * (3 * stripe))
            won += 1
        except FileExistsError:
            pass
        except OSError as error:
            # A server that was killed may have created it.
            assert error.errno == errno.EIO and sys.argv[1] == "disturbed", error
    print(won)
"#;

/// How the container is made, and objects in it.
fn creators(machines: &Machines) -> (String, String) {
    let program = program(machines, KILLED);
    let make = "import terral; terral.Container.make('parts', connection=terral.connect())";
    std::fs::write(machines.home().join("make.py"), make).expect("writes");
    (by_python(&machines.home().join("make.py")), program)
}

/// What programs of these machines say to a script.
fn says(machines: &Machines, script: &str, expected: &str) {
    let script = script.replace("$TERRAL_HOME", &machines.home().display().to_string());
    let output = machines.run_with(&[], &script);
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out, expected, "{}", said(&output));
}

#[test]
fn whoever_creates_striped_objects_is_killed_and_each_is_whole_or_not_there() {
    let Some(machines) = Machines::new(3) else { return };
    let (make, program) = creators(&machines);
    let script = format!(
        "{make}
        for round in 1 2 3 4 5 6; do
            {program} on $round > $TERRAL_HOME/log & it=$!
            until grep -q begins $TERRAL_HOME/log; do sleep 0.02; done
            sleep 0.$round; kill -9 $it; wait $it 2> /dev/null
        done
        {program} check; on h1 {program} check"
    );
    says(&machines, &script, "True\nTrue\n");
}

#[test]
fn of_two_who_create_a_striped_object_one_has_it_though_servers_are_killed() {
    let Some(machines) = Machines::new(3) else { return };
    let (make, program) = creators(&machines);
    // Both from this machine, as an object's address begins with where it was created.
    let script = format!(
        "{make}
        {program} race > $TERRAL_HOME/one & {program} race > $TERRAL_HOME/two & wait
        cat $TERRAL_HOME/one $TERRAL_HOME/two | awk '{{ all += $1 }} END {{ print all }}'
        {program} check; on h2 {program} check
        (for at in h1 h2 h0; do sleep 0.3; kill -9 $(pid_of $at); done) & killer=$!
        on h1 {program} disturbed | wc -l; wait $killer
        {program} check; on h2 {program} check"
    );
    says(&machines, &script, "40\nTrue\nTrue\n1\nTrue\nTrue\n");
}
