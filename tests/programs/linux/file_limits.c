/* The limit on the size of files is the program's, on its file. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "told.h"

static volatile int signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void limit_to(rlim_t bytes) {
    struct rlimit limit = {bytes, RLIM_INFINITY};
    static int way;
    /* Every way to set it counts. */
    switch (way++ % 3) {
    case 0:
        MUST(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        break;
    case 1:
        MUST(syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &limit, NULL) == 0);
        break;
    default:
        MUST(syscall(SYS_setrlimit, RLIMIT_FSIZE, &limit) == 0);
    }
    printf("limit %ld\n", (long)bytes);
}

static void look(int fd) {
    struct stat status;
    MUST(fstat(fd, &status) == 0);
    printf("size %ld at %ld, signals %d\n", (long)status.st_size, (long)lseek(fd, 0, SEEK_CUR),
           signals);
}

static void writes(const char *name, int flags) {
    static char bytes[100000];
    struct iovec vector[] = {{bytes, 600}, {bytes, 600}};
    int fd = open(name, O_RDWR | O_CREAT | flags, 0644);
    MUST(fd >= 0);
    limit_to(10000);
    TELL(write(fd, bytes, 9000));
    look(fd);
    TELL(writev(fd, vector, 2));
    look(fd);
    TELL(write(fd, bytes, 1));
    look(fd);
    TELL(write(fd, bytes, 0));
    TELL(pwrite(fd, bytes, 2000, 9999));
    TELL(pwrite(fd, bytes, 10, 10000));
    TELL(pwrite(fd, bytes, 10, 100));
    TELL(ftruncate(fd, 10001));
    TELL(ftruncate(fd, 10000));
    TELL(truncate(name, 20000));
    TELL(truncate(name, 9990));
    TELL(fallocate(fd, 0, 0, 10001));
    TELL(fallocate(fd, 0, 0, 10000));
    look(fd);
    limit_to(RLIM_INFINITY);
    TELL(ftruncate(fd, 50000));
    TELL(pwrite(fd, bytes, 100000, 40000));
    look(fd);
    limit_to(10000);
    TELL(pwrite(fd, bytes, 10, 30000));
    TELL(ftruncate(fd, 30000));
    TELL(ftruncate(fd, 20000));
    TELL(ftruncate(fd, 20001));
    look(fd);
    limit_to(3 << 20);
    for (int i = 0; i < 50; i++) {
        if (pwrite(fd, bytes, sizeof bytes, i * 100000L) != sizeof bytes) {
            printf("until %d\n", i);
            break;
        }
    }
    look(fd);
    MUST(close(fd) == 0);
}

int main(void) {
    signal(SIGXFSZ, count);
    writes("file", 0);
    writes("appended", O_APPEND);
    /* Where the limit is small, files that keep within it are whole, wherever they lie. */
    limit_to(4096);
    char page[4096], name[32];
    for (int i = 0; i < 600; i++) {
        memset(page, i, sizeof page);
        snprintf(name, sizeof name, "small-%d", i);
        int fd = open(name, O_RDWR | O_CREAT, 0644);
        MUST(fd >= 0 && write(fd, page, sizeof page) == sizeof page);
        memset(page, 0, sizeof page);
        MUST(pread(fd, page, sizeof page, 0) == sizeof page && page[4000] == (char)i);
        MUST(close(fd) == 0);
    }
    printf("signals %d\n", signals);
    signal(SIGXFSZ, SIG_DFL);
    pid_t child = fork();
    if (child == 0) {
        int fd = open("file", O_RDWR);
        ssize_t done = pwrite(fd, page, 1, 4096);
        _exit(done == -1 ? 1 : 0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    printf("a child ends by %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("file", O_RDWR);
    TELL(pwrite(fd, page, 1, 4096));
    TELL(pwrite(fd, page, 4, 4094));
    return 0;
}
