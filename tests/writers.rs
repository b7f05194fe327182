//! Programs that write until they may no more, and what scripts say of them: for tests of who may
//! do what on several machines. Not here: who they are.

/// Writes to a file that it has open, again and again; says what comes of that when it changes, and
/// in another file how often it was done.
pub const WRITER: &str = r#"
import os, sys, time
path, said, over = sys.argv[1:]
f, last, count = os.open(path, os.O_RDWR | os.O_CREAT), "", 0
counted = os.open(said + ".count", os.O_WRONLY | os.O_CREAT)
said = open(said, "w")
while not os.path.exists(over):
    try:
        os.pwrite(f, b"x" * 100, 0)
        now, count = "wrote", count + 1
        os.pwrite(counted, b"%09d\n" % count, 0)
    except OSError as error: now = os.strerror(error.errno)
    if now != last: print(now, file=said, flush=True)
    last = now
    time.sleep(0.02)
"#;

/// Whether lines end so, one after the other.
pub fn ends(lines: &[String], expected: &[&str]) {
    let both = || lines.iter().zip(expected);
    let same = lines.len() == expected.len() && both().all(|(line, end)| line.ends_with(end));
    assert!(same, "{lines:#?}\n{expected:#?}");
}
