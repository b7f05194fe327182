/* Calls that are given addresses where nothing is, or nothing more after some bytes. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#include "told.h"

enum { PAGE = 4096, LONG = 5 << 20 };

/* So much memory, and nothing after it. */
static char *before_nothing(size_t bytes) {
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    char *start = mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    MUST(start != MAP_FAILED && munmap(start + whole, PAGE) == 0);
    return start + whole - bytes;
}

static void *const addresses[] = {NULL, (void *)1, (void *)0x7ffffffff000, (void *)-4096};

static void paths_and_structures(int fd, void *bad) {
    struct stat status;
    char *path = bad;
    off_t *offset = bad;
    char text[8];
    TELL(open(path, O_RDONLY));
    TELL(openat(fd, path, O_RDONLY));
    TELL(stat(path, &status));
    TELL(stat("file", bad));
    TELL(lstat("file", bad));
    TELL(fstat(fd, bad));
    TELL(fstatat(AT_FDCWD, "file", bad, 0));
    TELL(statx(AT_FDCWD, "file", 0, STATX_SIZE, bad));
    TELL(access(path, F_OK));
    TELL(unlink(path));
    TELL(mkdir(path, 0755));
    TELL(rename(path, "other"));
    TELL(rename("file", path));
    TELL(link("file", path));
    TELL(symlink(path, "other"));
    TELL(symlink("file", path));
    TELL(readlink(path, text, sizeof text));
    TELL(readlink("link", bad, sizeof text));
    TELL(chmod(path, 0644));
    TELL(chdir(path));
    TELL(truncate(path, 1));
    TELL(statfs(path, (struct statfs *)&status));
    TELL(statfs("file", bad));
    TELL(fstatfs(fd, bad));
    TELL(setxattr("file", path, "x", 1, 0));
    TELL(getxattr("file", "user.name", bad, 10));
    TELL(fcntl(fd, F_GETLK, bad));
    TELL(fcntl(fd, F_SETLK, bad));
    TELL(fcntl(fd, F_OFD_SETLKW, bad));
    TELL(ioctl(fd, FIONREAD, bad));
    TELL(mkfifo(path, 0600));
    if (bad != NULL) {
        TELL(utimensat(AT_FDCWD, "file", bad, 0));
        TELL(futimens(fd, bad));
        TELL(sendfile(fd, fd, offset, 1));
        TELL(copy_file_range(fd, offset, fd, NULL, 1, 0));
        TELL(setxattr("file", "user.other", bad, 10, 0));
    }
}

static void buffers(int fd, void *bad) {
    struct iovec one = {bad, 10}, *vector = bad;
    lseek(fd, 0, SEEK_SET);
    TELL(read(fd, bad, 10));
    TELL(write(fd, bad, 10));
    TELL(pread(fd, bad, 10, 0));
    TELL(pwrite(fd, bad, 10, 0));
    TELL(readv(fd, &one, 1));
    TELL(writev(fd, &one, 1));
    TELL(readv(fd, vector, 1));
    TELL(writev(fd, vector, 2));
    TELL(read(fd, bad, 0));
    TELL(write(fd, bad, 0));
    TELL(pread(fd, bad, 10, 100000000));
    TELL(lseek(fd, 0, SEEK_CUR));
}

/* What of a file is as it should be: its size, and a sum. */
static void look(int fd) {
    struct stat status;
    static unsigned char all[LONG + PAGE];
    MUST(fstat(fd, &status) == 0);
    ssize_t count = pread(fd, all, sizeof all, 0);
    unsigned long sum = 0;
    for (ssize_t i = 0; i < count; i++) {
        sum = sum * 31 + all[i];
    }
    printf("%ld bytes, %zd read, %lx, at %ld\n", (long)status.st_size, count, sum,
           (long)lseek(fd, 0, SEEK_CUR));
}

static void partly(size_t there, size_t asked, int flags) {
    char name[64];
    snprintf(name, sizeof name, "part-%zu-%d", there, flags);
    int fd = open(name, O_RDWR | O_CREAT | flags, 0644);
    char *memory = before_nothing(there);
    MUST(fd >= 0);
    for (size_t i = 0; i < there; i++) {
        memory[i] = (char)(i * 7 + i / 251);
    }
    for (int round = 0; round < 3; round++) {
        printf("%zu of %zu, flags %d\n", there, asked, flags);
        TELL(write(fd, memory, asked));
        look(fd);
        TELL(pwrite(fd, memory, asked, 1000));
        look(fd);
        lseek(fd, 1, SEEK_SET);
        memset(memory, 0, there);
        TELL(read(fd, memory, asked));
        TELL(lseek(fd, 0, SEEK_CUR));
        TELL(pread(fd, memory, asked, 5));
        look(fd);
        struct iovec two[] = {{"first", 5}, {memory, asked}};
        TELL(writev(fd, two, 2));
        look(fd);
        for (size_t i = 0; i < there; i++) {
            memory[i] = (char)(i * 11 + round);
        }
    }
    /* What was never written are zeros. */
    MUST(ftruncate(fd, 0) == 0 && ftruncate(fd, LONG) == 0);
    TELL(pread(fd, memory, asked, 0));
    look(fd);
    MUST(close(fd) == 0);
}

static sigjmp_buf back;
static volatile int told_signal;

static void jump(int signal, siginfo_t *info, void *context) {
    (void)info, (void)context;
    told_signal = signal;
    siglongjmp(back, 1);
}

static char *volatile nowhere = (char *)16;

/* The program's own faults are the program's, whoever else looks at them. */
static void own_faults(int fd) {
    struct sigaction action = {.sa_sigaction = jump, .sa_flags = SA_SIGINFO}, old;
    MUST(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
    MUST(sigaction(SIGSEGV, &action, &old) == 0 && old.sa_handler == SIG_DFL);
    if (sigsetjmp(back, 1) == 0) {
        *nowhere = 1;
    }
    printf("own fault: %d\n", told_signal == SIGSEGV);
    TELL(read(fd, nowhere, 1));
    TELL(stat(nowhere, (struct stat *)nowhere));
    MUST(sigaction(SIGSEGV, NULL, &old) == 0 && old.sa_sigaction == jump);
    action.sa_flags |= SA_RESETHAND;
    MUST(sigaction(SIGSEGV, &action, NULL) == 0);
    TELL(read(fd, nowhere, 1));
    told_signal = 0;
    if (sigsetjmp(back, 1) == 0) {
        *nowhere = 1;
    }
    MUST(sigaction(SIGSEGV, NULL, &old) == 0);
    printf("once: %d, then %d\n", told_signal == SIGSEGV, old.sa_handler == SIG_DFL);
    MUST(signal(SIGSEGV, SIG_IGN) == SIG_DFL && signal(SIGSEGV, SIG_DFL) == SIG_IGN);
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            TELL(read(fd, nowhere, 1));
            i == 0 ? *nowhere = 1 : i == 1 ? raise(SIGBUS) : kill(getpid(), SIGSEGV);
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        printf("a child ends by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
}

static void *in_a_thread(void *fd) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (int i = 0; i < 1000; i++) {
        MUST(pread(*(int *)fd, nowhere, 10, 0) == -1 && errno == EFAULT);
    }
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, NULL, &now);
    printf("blocked: %d\n", sigismember(&now, SIGSEGV));
    return NULL;
}

int main(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    MUST(fd >= 0 && write(fd, "some bytes of it", 16) == 16 && symlink("file", "link") == 0);
    MUST(setxattr("file", "user.name", "value", 5, 0) == 0);
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        paths_and_structures(fd, addresses[i]);
        buffers(fd, addresses[i]);
    }
    const size_t there[] = {1, 100, PAGE, PAGE + 100, 64 << 10, 3 << 20};
    const int flags[] = {0, O_APPEND};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        for (int j = 0; j < 2; j++) {
            partly(there[i], there[i] + 10, flags[j]);
            partly(there[i], there[i] + (1 << 20), flags[j]);
        }
    }
    own_faults(fd);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        MUST(pthread_create(&threads[i], NULL, in_a_thread, &fd) == 0);
    }
    for (int i = 0; i < 2; i++) {
        MUST(pthread_join(threads[i], NULL) == 0);
    }
    look(fd);
    return 0;
}
