/* Operations that processes do at once on the same names. Whatever the order, the sums are known:
 * one creates, the others are told that it exists; no record is lost or mixed. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "differential.h"

enum { RECORDS = 10, STABLE = 40, STRIPE = 700, VERSION = 3000, MOST_ERRORS = 8 };

enum kind { EXCLUSIVE, MKDIR, RENAME, UNLINK, RMDIR, LINK, SYMLINK, NOREPLACE, KINDS };

static const char *const kind_names[KINDS] = {"exclusive", "mkdir",   "rename", "unlink",
                                              "rmdir",     "link",    "symlink", "noreplace"};

struct shared {
    atomic_int arrived, round;
    atomic_int won[KINDS], lost[KINDS], odd[KINDS];
    atomic_int torn, missing, unlisted, wrong;
    atomic_int first_errors[MOST_ERRORS];
};

static struct shared *all;
static const char *home;

size_t race_shared_size(void) {
    return sizeof(struct shared);
}

static void together(void) {
    int round = atomic_load(&all->round);
    if (atomic_fetch_add(&all->arrived, 1) + 1 == world.processes) {
        atomic_store(&all->arrived, 0);
        atomic_fetch_add(&all->round, 1);
    }
    while (atomic_load(&all->round) == round) {
        sched_yield();
    }
}

static const char *name(const char *stem, int number) {
    static char names[2][2048];
    static int turn;
    char *path = names[turn++ % 2];
    snprintf(path, sizeof names[0], "%s/%s%d", home, stem, number);
    return path;
}

static void count_error(enum kind kind, int expected) {
    if (errno == expected) {
        atomic_fetch_add(&all->lost[kind], 1);
        return;
    }
    atomic_fetch_add(&all->odd[kind], 1);
    atomic_store(&all->first_errors[kind], errno);
}

static void judge(enum kind kind, int answer, int expected) {
    if (answer >= 0) {
        atomic_fetch_add(&all->won[kind], 1);
    } else {
        count_error(kind, expected);
    }
}

static void put_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    ssize_t written = write(fd, "raced", 5);
    if (close(fd) != 0 || written != 5) {
        atomic_fetch_add(&all->wrong, 1);
    }
}

static void win_names(int me, int round) {
    if (me == 0) {
        put_file(name("moved", round));
        put_file(name("doomed", round));
        mkdir(name("emptied", round), 0755);
    }
    char own[64];
    snprintf(own, sizeof own, "own%d-", me);
    put_file(name(own, round));
    together();
    int fd = open(name("excl", round), O_WRONLY | O_CREAT | O_EXCL, 0644);
    judge(EXCLUSIVE, fd, EEXIST);
    close(fd);
    judge(MKDIR, mkdir(name("made", round), 0755), EEXIST);
    char to[64];
    snprintf(to, sizeof to, "arrived%d-", me);
    judge(RENAME, rename(name("moved", round), name(to, round)), ENOENT);
    judge(UNLINK, unlink(name("doomed", round)), ENOENT);
    judge(RMDIR, rmdir(name("emptied", round)), ENOENT);
    if (feature("links")) {
        judge(LINK, link(name(own, round), name("linked", round)), EEXIST);
    }
    if (feature("symlinks")) {
        judge(SYMLINK, symlink("anywhere", name("pointer", round)), EEXIST);
    }
    if (feature("renameat2")) {
        judge(NOREPLACE, renameat2(AT_FDCWD, name(own, round), AT_FDCWD, name("only", round),
                                   RENAME_NOREPLACE), EEXIST);
    }
    together();
    unlink(name(to, round));
}

static void append_records(int me, int round) {
    int fd = open(name("log", 0), O_WRONLY | O_APPEND | O_CREAT, 0644);
    for (int i = 0; i < RECORDS; i++) {
        char record[9000];
        int length = 64 + (me * 37 + i * 911 + round * 13) % 8900;
        memset(record, 'a' + me, sizeof record);
        snprintf(record, 64, "<%d %d %d %d ", me, round, i, length);
        record[strlen(record)] = (char)('a' + me);
        record[length - 1] = '\n';
        if (write(fd, record, (size_t)length) != length) {
            atomic_fetch_add(&all->wrong, 1);
        }
    }
    close(fd);
}

/* One replaces a file by renaming, again and again; the others always find a whole one. */
static void replace_and_read(int me, int round) {
    static char bytes[VERSION + 1];
    for (int i = 0; i < RECORDS; i++) {
        if (me == 0) {
            int fd = open(name("version", round), O_WRONLY | O_CREAT | O_TRUNC, 0644);
            memset(bytes, 'A' + (round + i) % 26, VERSION);
            if (write(fd, bytes, VERSION) != VERSION) {
                atomic_fetch_add(&all->wrong, 1);
            }
            close(fd);
            if (rename(name("version", round), name("target", 0)) != 0) {
                atomic_fetch_add(&all->wrong, 1);
            }
            continue;
        }
        int fd = open(name("target", 0), O_RDONLY);
        if (fd < 0) {
            atomic_fetch_add(&all->missing, 1);
            continue;
        }
        ssize_t count = read(fd, bytes, sizeof bytes);
        int whole = count == VERSION;
        for (ssize_t at = 1; at < count; at++) {
            whole = whole && bytes[at] == bytes[0];
        }
        atomic_fetch_add(&all->torn, !whole);
        close(fd);
    }
}

static void churn_and_list(int me) {
    char own[64];
    snprintf(own, sizeof own, "busy0/churn%d-", me);
    for (int i = 0; i < RECORDS; i++) {
        put_file(name(own, i));
    }
    int stable = 0;
    DIR *stream = opendir(name("busy", 0));
    struct dirent *entry;
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        stable += strncmp(entry->d_name, "stable", 6) == 0;
    }
    if (stream == NULL || closedir(stream) != 0 || stable != STABLE) {
        atomic_fetch_add(&all->unlisted, 1);
    }
    for (int i = 0; i < RECORDS; i++) {
        if (unlink(name(own, i)) != 0) {
            atomic_fetch_add(&all->wrong, 1);
        }
    }
}

/* Two processes that share an offset, and stripes of one file side by side. */
static void share_offset(int me, int round) {
    char own[64];
    snprintf(own, sizeof own, "shared%d-", me);
    int fd = open(name(own, round), O_RDWR | O_CREAT, 0644);
    pid_t child = fork();
    for (int i = 0; i < RECORDS; i++) {
        if (write(fd, child == 0 ? "child record\n" : "other record\n", 13) != 13) {
            atomic_fetch_add(&all->wrong, 1);
        }
    }
    if (child == 0) {
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    char back[13 * 2 * RECORDS + 1];
    int children = 0, others = 0;
    ssize_t count = pread(fd, back, sizeof back, 0);
    for (ssize_t at = 0; at + 13 <= count; at += 13) {
        children += memcmp(back + at, "child record\n", 13) == 0;
        others += memcmp(back + at, "other record\n", 13) == 0;
    }
    if (status != 0 || count != 26 * RECORDS || children != RECORDS || others != RECORDS) {
        atomic_fetch_add(&all->torn, 1);
    }
    close(fd);
    unlink(name(own, round));
    char stripe[STRIPE];
    memset(stripe, 'a' + me, sizeof stripe);
    fd = open(name("stripes", 0), O_WRONLY | O_CREAT, 0644);
    off_t at = ((off_t)round * world.processes + me) * STRIPE;
    if (pwrite(fd, stripe, STRIPE, at) != STRIPE || close(fd) != 0) {
        atomic_fetch_add(&all->wrong, 1);
    }
}

static void add_one(int fd) {
    char text[16] = "";
    if (pread(fd, text, sizeof text - 1, 0) < 0) {
        atomic_fetch_add(&all->wrong, 1);
    }
    snprintf(text, sizeof text, "%d", atoi(text) + 1);
    if (pwrite(fd, text, strlen(text), 0) < 0) {
        atomic_fetch_add(&all->wrong, 1);
    }
}

static void count_under_locks(void) {
    for (int i = 0; feature("locks") && i < RECORDS; i++) {
        int fd = open(name("counter", 0), O_RDWR | O_CREAT, 0644);
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
        if (fcntl(fd, F_SETLKW, &lock) != 0) {
            atomic_fetch_add(&all->wrong, 1);
        }
        add_one(fd);
        close(fd);
    }
    for (int i = 0; feature("flock") && i < RECORDS; i++) {
        int fd = open(name("counter", 1), O_RDWR | O_CREAT, 0644);
        if (flock(fd, LOCK_EX) != 0) {
            atomic_fetch_add(&all->wrong, 1);
        }
        add_one(fd);
        close(fd);
    }
}

void race(int me, int rounds, const char *root, void *shared) {
    all = shared;
    home = root;
    if (me == 0) {
        mkdir(name("busy", 0), 0755);
        for (int i = 0; i < STABLE; i++) {
            put_file(name("busy0/stable", i));
        }
        mkdir(name("busy", 0), 0755);
        put_file(name("target", 0));
        int fd = open(name("target", 0), O_WRONLY | O_TRUNC);
        char bytes[VERSION];
        memset(bytes, 'A', VERSION);
        if (write(fd, bytes, VERSION) != VERSION || close(fd) != 0) {
            atomic_fetch_add(&all->wrong, 1);
        }
    }
    for (int round = 0; round < rounds; round++) {
        together();
        win_names(me, round);
        append_records(me, round);
        replace_and_read(me, round);
        churn_and_list(me);
        share_offset(me, round);
        count_under_locks();
    }
    together();
}

/* Every record once, whole, and those of one process in their order; the file itself goes, since
 * the order between processes is theirs. */
static void judge_log(FILE *out, const char *root, int processes) {
    home = root;
    FILE *log = fopen(name("log", 0), "r");
    char *record = NULL;
    size_t room = 0;
    ssize_t length;
    long good = 0, bad = 0, late = 0;
    int last[MOST_PROCESSES];
    memset(last, -1, sizeof last);
    while (log != NULL && (length = getline(&record, &room, log)) > 0) {
        int who, round, i, told, begins = 0;
        int read = sscanf(record, "<%d %d %d %d %n", &who, &round, &i, &told, &begins);
        int whole = read == 4 && told == length && who >= 0 && who < processes;
        for (ssize_t at = begins; whole && at < length - 1; at++) {
            whole = record[at] == 'a' + who;
        }
        good += whole;
        bad += !whole;
        if (whole) {
            late += round * RECORDS + i != last[who] + 1;
            last[who] = round * RECORDS + i;
        }
    }
    free(record);
    if (log != NULL) {
        fclose(log);
    }
    fprintf(out, "log: good %ld, bad %ld, out of order %ld\n", good, bad, late);
    unlink(name("log", 0));
}

void report_races(FILE *out, int rounds, const char *root, void *shared, int processes) {
    all = shared;
    for (int kind = 0; kind < KINDS; kind++) {
        fprintf(out, "%s: won %d, lost %d, odd %d", kind_names[kind], all->won[kind],
                all->lost[kind], all->odd[kind]);
        if (all->first_errors[kind] != 0) {
            fprintf(out, " (%s)", strerrorname_np(all->first_errors[kind]));
        }
        fprintf(out, "\n");
    }
    fprintf(out, "torn %d, missing %d, unlisted %d, wrong %d\n", all->torn, all->missing,
            all->unlisted, all->wrong);
    judge_log(out, root, processes);
    for (int round = 0; round < rounds; round++) {
        unlink(name("only", round));
        for (int i = 0; i < processes; i++) {
            char own[64];
            snprintf(own, sizeof own, "own%d-", i);
            unlink(name(own, round));
        }
        unlink(name("linked", round));
    }
}
