/* Locks of every kind between processes: the same answers from any POSIX directory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

enum { WORKERS = 4, ROUNDS = 150 };

/* Stays open all the time: closing it would give back the process's own locks. */
static int watch;

static struct flock part(int type, long start, long length) {
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET};
    lock.l_start = start;
    lock.l_len = length;
    return lock;
}

static int range(int fd, int command, int type, long start, long length) {
    struct flock lock = part(type, start, length);
    return fcntl(fd, command, &lock);
}

/* What is in the way of an exclusive lock there: whose, or 0; -1 for a description's. */
static int holder(long start, long length) {
    struct flock lock = part(F_WRLCK, start, length);
    CHECK(fcntl(watch, F_OFD_GETLK, &lock) == 0);
    return lock.l_type == F_UNLCK ? 0 : lock.l_pid;
}

static int opened(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0);
    return fd;
}

static void phase(const char *name) {
    CHECK(holder(0, 0) == 0);
    printf("%s\n", name);
    fflush(stdout);
}

/* Another process, which says when it is ready, and can be told to end. */
struct other {
    pid_t pid;
    int told;
    int tell;
};

static void say(int fd) {
    CHECK(write(fd, "r", 1) == 1);
}

static void hear(int fd) {
    char byte;
    CHECK(read(fd, &byte, 1) == 1);
}

static struct other start(void (*work)(int told, int tell)) {
    int up[2], down[2];
    CHECK(pipe(up) == 0 && pipe(down) == 0);
    struct other other = {fork(), down[1], up[0]};
    if (other.pid == 0) {
        close(up[0]);
        close(down[1]);
        work(down[0], up[1]);
        _exit(0);
    }
    CHECK(other.pid > 0 && close(up[1]) == 0 && close(down[0]) == 0);
    hear(other.tell);
    return other;
}

static void ended(struct other other, int expected) {
    int status;
    CHECK(waitpid(other.pid, &status, 0) == other.pid && status == expected);
    CHECK(close(other.told) == 0 && close(other.tell) == 0);
}

static void finish(struct other other) {
    say(other.told);
    ended(other, 0);
}

static void stay(int told, int tell) {
    say(tell);
    hear(told);
}

static void hold_all(int told, int tell) {
    CHECK(range(opened(), F_SETLK, F_WRLCK, 0, 0) == 0);
    stay(told, tell);
}

static void hold_description(int told, int tell) {
    CHECK(range(opened(), F_OFD_SETLK, F_WRLCK, 0, 0) == 0);
    stay(told, tell);
}

static void hold_flock(int told, int tell) {
    CHECK(flock(opened(), LOCK_EX) == 0);
    stay(told, tell);
}

static void hold_second(int told, int tell) {
    CHECK(range(opened(), F_SETLK, F_WRLCK, 1, 1) == 0);
    stay(told, tell);
    int refused = range(watch, F_SETLKW, F_WRLCK, 0, 1) != 0;
    CHECK(!refused || errno == EDEADLK);
    _exit(refused);
}

static void ranges(void) {
    int fd = opened();
    CHECK(ftruncate(fd, 100) == 0 && lseek(fd, 40, SEEK_SET) == 40);
    CHECK(range(fd, F_SETLK, F_WRLCK, 10, 5) == 0);
    CHECK(holder(0, 10) == 0 && holder(15, 0) == 0 && holder(14, 1) == getpid());
    CHECK(range(fd, F_SETLK, F_RDLCK, 12, 1) == 0);
    struct flock lock = part(F_RDLCK, 0, 0);
    CHECK(fcntl(watch, F_OFD_GETLK, &lock) == 0);
    CHECK(lock.l_type == F_WRLCK && lock.l_start == 10 && lock.l_len == 2);
    CHECK(lock.l_whence == SEEK_SET && lock.l_pid == getpid());
    lock = part(F_RDLCK, -10, 20);
    lock.l_whence = SEEK_CUR;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && holder(29, 1) == 0 && holder(49, 1) == getpid());
    lock = part(F_RDLCK, 0, -10);
    lock.l_whence = SEEK_END;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && holder(90, 1) == getpid() && holder(100, 0) == 0);
    CHECK(range(fd, F_SETLK, F_WRLCK, 200, 0) == 0);
    lock = part(F_RDLCK, 150, 0);
    CHECK(fcntl(watch, F_OFD_GETLK, &lock) == 0 && lock.l_start == 200 && lock.l_len == 0);
    FAILS(range(fd, F_SETLK, F_RDLCK, -1, 1), EINVAL);
    FAILS(range(fd, F_SETLK, F_RDLCK, 5, -6), EINVAL);
    FAILS(range(fd, F_SETLK, F_RDLCK, 5, INT64_MAX), EOVERFLOW);
    FAILS(range(fd, F_SETLK, 77, 0, 1), EINVAL);
    FAILS(range(fd, F_GETLK, F_UNLCK, 0, 1), EINVAL);
    lock = part(F_RDLCK, 0, 0);
    lock.l_whence = 9;
    FAILS(fcntl(fd, F_SETLK, &lock), EINVAL);
    lock = part(F_RDLCK, 0, 0);
    lock.l_pid = 1;
    FAILS(fcntl(fd, F_OFD_SETLK, &lock), EINVAL);
    FAILS(flock(fd, 0), EINVAL);
    FAILS(lockf(fd, 9, 0), EINVAL);
    int reads = open("file", O_RDONLY), writes = open("file", O_WRONLY);
    FAILS(range(reads, F_SETLK, F_WRLCK, 0, 1), EBADF);
    FAILS(range(writes, F_SETLK, F_RDLCK, 0, 1), EBADF);
    CHECK(flock(reads, LOCK_EX) == 0 && flock(reads, LOCK_UN) == 0);
    int path = open("file", O_PATH);
    FAILS(flock(path, LOCK_SH), EBADF);
    FAILS(range(path, F_GETLK, F_RDLCK, 0, 0), EBADF);
    CHECK(close(path) == 0 && close(writes) == 0 && close(reads) == 0);
    CHECK(holder(0, 0) == 0 && close(fd) == 0);
}

static void sections(void) {
    int fd = opened();
    CHECK(lseek(fd, 10, SEEK_SET) == 10 && lockf(fd, F_LOCK, 5) == 0);
    CHECK(holder(10, 5) == getpid() && holder(15, 0) == 0 && holder(0, 10) == 0);
    CHECK(lockf(fd, F_TEST, 0) == 0 && lockf(fd, F_ULOCK, 2) == 0 && holder(10, 2) == 0);
    CHECK(lockf(fd, F_ULOCK, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    struct other other = start(hold_all);
    FAILS(lockf(fd, F_TEST, 1), EACCES);
    FAILS(lockf(fd, F_TLOCK, 1), EAGAIN);
    finish(other);
    CHECK(lockf(fd, F_TLOCK, 1) == 0 && close(fd) == 0);
}

/* Each way to close a descriptor of the file gives the process's own locks back. */
static void closes(void) {
    int fd = opened();
    for (int way = 0; way < 6; way++) {
        CHECK(range(fd, F_SETLK, F_WRLCK, 0, 0) == 0 && holder(0, 0) == getpid());
        int second = open("file", O_RDONLY), null = open("/dev/null", O_RDONLY);
        CHECK(second >= 0 && null >= 0);
        FAILS(dup2(-1, second), EBADF);
        CHECK(holder(0, 0) == getpid());
        FILE *stream = way == 4 ? fdopen(second, "r") : NULL;
        CHECK(way != 0 || close(second) == 0);
        CHECK(way != 1 || dup2(null, second) == second);
        CHECK(way != 2 || dup3(null, second, O_CLOEXEC) == second);
        CHECK(way != 3 || close_range((unsigned)second, (unsigned)second, 0) == 0);
        CHECK(way != 4 || fclose(stream) == 0);
        CHECK(way != 5 || (close(null), closefrom(second), 1));
        CHECK(holder(0, 0) == 0);
        if (way == 1 || way == 2) {
            CHECK(close(second) == 0);
        }
        CHECK(way == 5 || close(null) == 0);
    }
    CHECK(range(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
    int else_where = open("another", O_RDWR | O_CREAT, 0644);
    CHECK(else_where >= 0 && close(else_where) == 0 && holder(0, 0) == getpid());
    CHECK(close(fd) == 0 && unlink("another") == 0);
}

static void inherit(int told, int tell) {
    int fd = watch;
    CHECK(holder(0, 0) == getppid());
    FAILS(range(fd, F_SETLK, F_WRLCK, 0, 0), EAGAIN);
    int again = opened();
    CHECK(close(again) == 0 && holder(0, 0) == getppid());
    stay(told, tell);
}

static void forks(void) {
    int fd = opened();
    CHECK(range(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
    struct other other = start(inherit);
    CHECK(holder(0, 0) == getpid());
    finish(other);
    CHECK(holder(0, 0) == getpid() && close(fd) == 0);
}

/* Those of descriptions are shared by copies, also in children, and end with the last. */
static void descriptions(void) {
    for (int kind = 0; kind < 2; kind++) {
        int fd = opened(), other = opened(), copy = dup(fd);
        if (kind == 0) {
            CHECK(range(fd, F_OFD_SETLK, F_WRLCK, 0, 0) == 0 && holder(0, 0) == -1);
            FAILS(range(other, F_OFD_SETLK, F_RDLCK, 3, 1), EAGAIN);
            FAILS(range(other, F_SETLK, F_RDLCK, 3, 1), EAGAIN);
            CHECK(range(copy, F_OFD_SETLK, F_RDLCK, 3, 1) == 0);
            CHECK(range(other, F_OFD_SETLK, F_RDLCK, 3, 1) == 0);
            CHECK(range(other, F_OFD_SETLK, F_UNLCK, 0, 0) == 0);
        } else {
            CHECK(flock(fd, LOCK_EX) == 0 && holder(0, 0) == 0);
            FAILS(flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
            CHECK(flock(copy, LOCK_SH) == 0 && flock(other, LOCK_SH | LOCK_NB) == 0);
            FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
            CHECK(flock(other, LOCK_UN) == 0 && flock(copy, LOCK_EX) == 0);
        }
        struct other child = start(stay);
        CHECK(close(fd) == 0 && close(copy) == 0);
        int taken = kind == 0 ? range(other, F_OFD_SETLK, F_WRLCK, 0, 0)
                              : flock(other, LOCK_EX | LOCK_NB);
        CHECK(taken == -1 && errno == EAGAIN);
        finish(child);
        taken = kind == 0 ? range(other, F_OFD_SETLK, F_WRLCK, 0, 0)
                          : flock(other, LOCK_EX | LOCK_NB);
        CHECK(taken == 0 && close(other) == 0);
    }
}

/* Who waits gets the lock when its holder is killed. */
static void killed(void) {
    void (*const holders[])(int, int) = {hold_all, hold_description, hold_flock};
    for (int way = 0; way < 3; way++) {
        struct other other = start(holders[way]);
        pid_t waiter = fork();
        if (waiter == 0) {
            int fd = opened();
            CHECK((way == 2 ? flock(fd, LOCK_EX) : range(fd, F_SETLKW, F_WRLCK, 0, 0)) == 0);
            _exit(7);
        }
        int status;
        usleep(50000);
        CHECK(waitpid(waiter, &status, WNOHANG) == 0);
        CHECK(kill(other.pid, SIGKILL) == 0);
        ended(other, SIGKILL);
        CHECK(waitpid(waiter, &status, 0) == waiter && WEXITSTATUS(status) == 7);
    }
}

static void deadlock(void) {
    int fd = opened();
    CHECK(range(fd, F_SETLK, F_WRLCK, 0, 1) == 0);
    struct other other = start(hold_second);
    say(other.told);
    usleep(100000);
    /* Whoever comes second is refused: the other, where it was slow. */
    int refused = range(fd, F_SETLKW, F_WRLCK, 1, 1) != 0;
    CHECK(!refused || errno == EDEADLK);
    CHECK(holder(0, 1) == getpid() && range(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
    ended(other, refused ? 0 : 1 << 8);
    CHECK(close(fd) == 0);
}

static volatile sig_atomic_t rings;

/* What a handler writes while its thread waits for a lock is written. */
static void ring(int number) {
    (void)number;
    int saved = errno;
    int fd = open("rung", O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd >= 0 && write(fd, "!", 1) == 1 && close(fd) == 0) {
        rings++;
    }
    errno = saved;
}

/* And again and again: the first may come before the call that it is to interrupt. */
static void ring_after(long milliseconds) {
    struct timeval time = {.tv_usec = milliseconds * 1000};
    CHECK(setitimer(ITIMER_REAL, &(struct itimerval){time, time}, NULL) == 0);
}

static void ring_no_more(void) {
    CHECK(setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL) == 0);
}

static long rung(void) {
    struct stat about;
    CHECK(stat("rung", &about) == 0);
    return about.st_size;
}

/* When another has rung once more. */
static void release_later(int told, int tell) {
    long before = rung();
    hold_all(told, tell);
    while (rung() == before) {
        usleep(10000);
    }
    usleep(100000);
}

static void interrupted(void) {
    struct sigaction action = {.sa_handler = ring};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    int fd = opened();
    struct other other = start(hold_all);
    ring_after(100);
    FAILS(range(fd, F_SETLKW, F_RDLCK, 0, 0), EINTR);
    ring_after(100);
    FAILS(lockf(fd, F_LOCK, 0), EINTR);
    finish(other);
    other = start(hold_flock);
    ring_after(100);
    FAILS(flock(fd, LOCK_SH), EINTR);
    ring_no_more();
    CHECK(rings >= 3 && rung() == rings);
    finish(other);
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    other = start(release_later);
    say(other.told);
    ring_after(50);
    CHECK(range(fd, F_SETLKW, F_RDLCK, 0, 0) == 0);
    ring_no_more();
    ended(other, 0);
    CHECK(rings >= 4 && rung() == rings && unlink("rung") == 0);
    CHECK(close(fd) == 0);
}

static const char *own_path;

static void become(int told, int tell) {
    char from[16], to[16];
    snprintf(from, sizeof from, "%d", told);
    snprintf(to, sizeof to, "%d", tell);
    FAILS(execl("./missing", "missing", (char *)NULL), ENOENT);
    FAILS(execl("/dev/null", "null", (char *)NULL), EACCES);
    CHECK(holder(0, 0) == getpid());
    execl(own_path, own_path, "stay", from, to, (char *)NULL);
}

static void exec_and_keep(int told, int tell) {
    CHECK(range(opened(), F_SETLK, F_WRLCK, 0, 0) == 0);
    become(told, tell);
}

static void exec_and_close(int told, int tell) {
    int fd = open("file", O_RDWR | O_CLOEXEC);
    CHECK(range(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
    become(told, tell);
}

static void executes(void) {
    struct other other = start(exec_and_keep);
    CHECK(holder(0, 0) == other.pid);
    finish(other);
    other = start(exec_and_close);
    CHECK(holder(0, 0) == 0);
    finish(other);
}

static void *wait_in_thread(void *argument) {
    int fd = opened();
    CHECK(range(fd, F_OFD_SETLKW, F_WRLCK, 0, 0) == 0);
    *(volatile int *)argument = 1;
    CHECK(range(fd, F_OFD_SETLK, F_UNLCK, 0, 0) == 0 && close(fd) == 0);
    return NULL;
}

static void threads(void) {
    volatile int got = 0;
    pthread_t thread;
    int fd = opened();
    CHECK(range(fd, F_OFD_SETLK, F_RDLCK, 0, 0) == 0);
    CHECK(pthread_create(&thread, NULL, wait_in_thread, (void *)&got) == 0);
    usleep(50000);
    CHECK(!got && range(fd, F_OFD_SETLK, F_UNLCK, 0, 0) == 0);
    CHECK(pthread_join(thread, NULL) == 0 && got && close(fd) == 0);
}

static void locked_step(int way, int fd, int take) {
    switch (way) {
    case 0:
        CHECK(range(fd, F_SETLKW, take ? F_WRLCK : F_UNLCK, 0, 1) == 0);
        break;
    case 1:
        CHECK(range(fd, F_OFD_SETLKW, take ? F_WRLCK : F_UNLCK, 0, 1) == 0);
        break;
    case 2:
        CHECK(flock(fd, take ? LOCK_EX : LOCK_UN) == 0);
        break;
    default:
        CHECK(lockf(fd, take ? F_LOCK : F_ULOCK, 1) == 0);
    }
}

/* Processes that count together, each time reading and writing under a lock. */
static void counts(void) {
    for (int way = 0; way < 4; way++) {
        int fd = opened();
        long count = 0;
        CHECK(pwrite(fd, &count, sizeof count, 0) == (ssize_t)sizeof count);
        for (int worker = 0; worker < WORKERS; worker++) {
            if (fork() == 0) {
                int own = opened();
                for (int round = 0; round < ROUNDS; round++) {
                    locked_step(way, own, 1);
                    CHECK(pread(own, &count, sizeof count, 0) == (ssize_t)sizeof count);
                    count++;
                    CHECK(pwrite(own, &count, sizeof count, 0) == (ssize_t)sizeof count);
                    locked_step(way, own, 0);
                }
                _exit(0);
            }
        }
        for (int worker = 0; worker < WORKERS; worker++) {
            int status;
            CHECK(wait(&status) > 0 && status == 0);
        }
        CHECK(pread(fd, &count, sizeof count, 0) == (ssize_t)sizeof count);
        printf("%ld\n", count);
        CHECK(close(fd) == 0);
    }
}

int main(int count, char **arguments) {
    if (count == 4) {
        stay(atoi(arguments[2]), atoi(arguments[3]));
        return 0;
    }
    enter(count, arguments);
    own_path = arguments[0];
    watch = opened();
    ranges();
    phase("ranges");
    sections();
    phase("sections");
    closes();
    phase("closes");
    forks();
    phase("forks");
    descriptions();
    phase("descriptions");
    killed();
    phase("killed");
    deadlock();
    phase("deadlock");
    interrupted();
    phase("interrupted");
    executes();
    phase("executes");
    threads();
    phase("threads");
    counts();
    phase("counts");
    return 0;
}
