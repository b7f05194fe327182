/* File calls by number in the working directory: by libc's `syscall`, or, compiled with -DINLINE,
   by instructions of this program's own. Each answer is printed; also from a forked child, from
   threads, and, with an argument, while signals come whose handler does the same. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"
#include "raw.h"

#ifdef INLINE
#define raw raw_call
#else
static long raw(long number, long a, long b, long c, long d, long e, long f) {
    long answer = syscall(number, a, b, c, d, e, f);
    return answer == -1 ? -errno : answer;
}
#endif
#define CALL(name, ...) raw(SYS_##name, FIRST(__VA_ARGS__, 0, 0, 0, 0, 0, 0))
#define SAY(name, ...) printf("%s: %ld\n", #name, CALL(name, __VA_ARGS__))

static void names(const char *path) {
    char room[4096];
    long fd = CALL(openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0), count, found = 0, sum = 0;
    while ((count = CALL(getdents64, fd, room, sizeof room)) > 0) {
        for (long at = 0; at < count;) {
            struct dirent64 *entry = (struct dirent64 *)(room + at);
            for (char *letter = entry->d_name; *letter; letter++) sum += *letter;
            found++;
            at += entry->d_reclen;
        }
    }
    printf("%s: %ld names, sum %ld, end %ld\n", path, found, sum, count);
    SAY(close, fd);
}

static void files(void) {
    struct stat stat;
    struct statx statx;
    char room[64] = "";
    long fd = CALL(open, "one", O_RDWR | O_CREAT | O_TRUNC, 0640);
    CHECK(fd >= 0);
    SAY(write, fd, "hello, world", 12);
    SAY(pwrite64, fd, "HELLO", 5, 0);
    SAY(lseek, fd, 7, SEEK_SET);
    SAY(read, fd, room, sizeof room);
    printf("read %s\n", room);
    SAY(pread64, fd, room, 5, 0);
    SAY(fstat, fd, &stat);
    printf("size %ld mode %o links %ld\n", (long)stat.st_size, stat.st_mode, (long)stat.st_nlink);
    SAY(statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &statx);
    printf("size %ld mode %o\n", (long)statx.stx_size, statx.stx_mode);
    struct iovec pieces[2] = {{"ab", 2}, {"cde", 3}};
    SAY(pwritev2, fd, pieces, 2, 20, 0, 0);
    SAY(pwritev2, fd, pieces, 2, 20, 0, 1 << 20);
    SAY(fallocate, fd, 0, 0, 100);
    SAY(ftruncate, fd, 60);
    SAY(fcntl, fd, F_GETFL, 0);
    SAY(fsync, fd);
    SAY(fdatasync, fd);
    long copy = CALL(dup, fd);
    SAY(lseek, copy, 0, SEEK_END);
    SAY(close, copy);
    SAY(fadvise64, fd, 0, 0, POSIX_FADV_DONTNEED);
    SAY(flock, fd, 2 | 4);
    void *map = (void *)CALL(mmap, 0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK((intptr_t)map > 0);
    printf("map %.5s\n", (char *)map);
    memcpy(map, "BYMAP", 5);
    SAY(munmap, map, 8192);
    SAY(pread64, fd, room, 5, 0);
    printf("read %.5s\n", room);
    SAY(close, fd);
    SAY(close, fd);
    SAY(read, fd, room, 1);
    SAY(access, "one", R_OK);
    SAY(faccessat, AT_FDCWD, "two", R_OK);
    SAY(faccessat2, AT_FDCWD, "one", W_OK, AT_EACCESS);
    SAY(stat, "one", &stat);
    SAY(newfstatat, AT_FDCWD, ".", &stat, 0);
    printf("mode of . %o\n", stat.st_mode & S_IFMT);
    SAY(newfstatat, AT_FDCWD, "", &stat, 0);
    SAY(stat, (void *)8, &stat);
    SAY(stat, "one", (void *)8);
}

static void tree(void) {
    struct stat stat;
    char room[4096];
    SAY(mkdir, "d", 0755);
    SAY(mkdirat, AT_FDCWD, "d/e", 0700);
    SAY(mkdir, "d", 0755);
    SAY(rename, "one", "d/two");
    SAY(link, "d/two", "d/three");
    SAY(symlink, "two", "d/four");
    memset(room, 0, sizeof room);
    SAY(readlink, "d/four", room, sizeof room);
    printf("leads to %s\n", room);
    SAY(lstat, "d/four", &stat);
    printf("mode %o\n", stat.st_mode & S_IFMT);
    SAY(renameat2, AT_FDCWD, "d/two", AT_FDCWD, "d/three", 1);
    names("d");
    long directory = CALL(open, "d", O_RDONLY | O_DIRECTORY, 0);
    SAY(unlinkat, directory, "three", 0);
    SAY(openat, directory, "nothing", O_RDONLY, 0);
    SAY(fchdir, directory);
    long length = CALL(getcwd, room, sizeof room);
    printf("length right: %d, ends with /d: %d\n", length == (long)strlen(room) + 1,
           length > 2 && !strcmp(room + length - 3, "/d"));
    SAY(chdir, "..");
    SAY(close, directory);
    struct open_how how = {.flags = O_RDONLY};
    long fd = CALL(openat2, AT_FDCWD, "d/two", &how, sizeof how);
    printf("openat2: %d, then %ld\n", fd >= 0, CALL(close, fd));
    how.flags |= 1ull << 40;
    SAY(openat2, AT_FDCWD, "d/two", &how, sizeof how);
    struct timespec times[2] = {{5, 6}, {7, 8}};
    SAY(utimensat, AT_FDCWD, "d/two", times, 0);
    SAY(stat, "d/two", &stat);
    printf("changed at %ld.%ld\n", (long)stat.st_mtim.tv_sec, stat.st_mtim.tv_nsec);
    SAY(chmod, "d/two", 0600);
    SAY(fchmodat, AT_FDCWD, "d/two", 0604);
    SAY(truncate, "d/two", 3);
    SAY(unlink, "d/four");
    SAY(rmdir, "d");
    SAY(unlink, "d/two");
    SAY(rmdir, "d/e");
    SAY(rmdir, "d");
}

/* A file of its own, again and again. */
static void rounds(int who, int count) {
    char name[32], room[32];
    snprintf(name, sizeof name, "own-%d", who);
    for (int i = 0; i < count; i++) {
        long fd = CALL(openat, AT_FDCWD, name, O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0);
        int length = snprintf(room, sizeof room, "%d of %d.", i, who);
        CHECK(CALL(pwrite64, fd, room, length, 0) == length);
        char back[32] = "";
        CHECK(CALL(pread64, fd, back, length, 0) == length && !memcmp(room, back, length));
        struct stat stat;
        CHECK(CALL(fstat, fd, &stat) == 0 && S_ISREG(stat.st_mode));
        CHECK(CALL(close, fd) == 0);
    }
    CHECK(CALL(unlink, name) == 0);
}

static void *thread(void *who) {
    rounds((int)(intptr_t)who, 200);
    return NULL;
}

static volatile sig_atomic_t handled;
/* Where it began: the tree is gone through meanwhile. */
static long beginning;

static void on_signal(int signal) {
    (void)signal;
    int saved = errno;
    struct stat stat;
    CHECK(CALL(newfstatat, beginning, "kept", &stat, 0) == 0 && stat.st_size == 4);
    handled++;
    errno = saved;
}

int main(int count, char **arguments) {
    (void)arguments;
    long fd = CALL(open, "kept", O_WRONLY | O_CREAT, 0600);
    CHECK(CALL(write, fd, "kept", 4) == 4 && CALL(close, fd) == 0);
    beginning = CALL(open, ".", O_RDONLY | O_DIRECTORY, 0);
    CHECK(beginning >= 0);
    if (count > 1) {
        struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
        sigfillset(&action.sa_mask);
        CHECK(sigaction(SIGALRM, &action, NULL) == 0);
        struct itimerval often = {{0, 700}, {0, 700}};
        CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    }
    sigset_t all, told;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
    rounds(0, 3);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &told) == 0 && sigismember(&told, SIGSYS) == 1);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &all, NULL) == 0);
    files();
    tree();
    fflush(stdout);
    for (int how = 0; how < 2; how++) {
        long child = how ? CALL(fork, 0) : (long)fork();
        if (child == 0) {
            rounds(100 + how, 50);
            CALL(exit_group, 7);
        }
        int status = 0;
        while (waitpid((pid_t)child, &status, 0) < 0) CHECK(errno == EINTR);
        printf("child: %d\n", WEXITSTATUS(status));
    }
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    if (count > 1)
        while (handled < 50) rounds(9, 5);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    names(".");
    printf("over\n");
    return 0;
}
