/* FIFOs as programs use them: opened in every way, waited for, passed on, moved, removed. */
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "../linux/told.h"

static void show(const char *name) {
    struct stat status;
    if (lstat(name, &status) != 0) {
        printf("%s: %s\n", name, strerrorname_np(errno));
        return;
    }
    long size = S_ISDIR(status.st_mode) ? 0 : (long)status.st_size;
    printf("%s: mode %o links %lu size %ld blocks %ld owner %u\n", name, status.st_mode,
           (unsigned long)status.st_nlink, size, (long)status.st_blocks, status.st_uid);
    fflush(stdout);
}

static void same_inode(int fd, const char *name) {
    struct stat by_fd, by_name, by_path;
    struct statx extended;
    MUST(fstat(fd, &by_fd) == 0 && lstat(name, &by_name) == 0);
    MUST(fstatat(fd, "", &by_path, AT_EMPTY_PATH) == 0);
    MUST(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended) == 0);
    TELL(by_fd.st_ino == by_name.st_ino && by_fd.st_dev == by_name.st_dev);
    TELL(by_fd.st_mode == by_name.st_mode && by_fd.st_nlink == by_name.st_nlink);
    TELL(by_path.st_ino == by_name.st_ino && extended.stx_ino == by_name.st_ino);
    TELL(extended.stx_mode == by_name.st_mode && by_path.st_mode == by_name.st_mode);
}

static void made(void) {
    umask(022);
    TELL(mkfifo("a", 0666));
    TELL(mkfifo("a", 0666));
    TELL(mkfifoat(AT_FDCWD, "b", 0640));
    TELL(mknod("c", S_IFIFO | 04755, 0));
    TELL(syscall(SYS_mknodat, AT_FDCWD, "d", S_IFIFO | 0600, 0));
    TELL(mkfifo("missing/a", 0600));
    TELL(mkfifo("a/b", 0600));
    TELL(mkfifo("e/", 0600));
    TELL(mkfifo("a/", 0600));
    for (const char *name = "abcde"; *name; name++) {
        show((char[]){*name, 0});
    }
    struct dirent **names;
    int count = scandir(".", &names, NULL, alphasort);
    for (int i = 0; i < count; i++) {
        printf("%s %d\n", names[i]->d_name, names[i]->d_type);
    }
}

static void opened(void) {
    char byte;
    TELL(open("a", O_WRONLY | O_NONBLOCK));
    int reader = open("a", O_RDONLY | O_NONBLOCK);
    TELL(reader >= 0);
    TELL(read(reader, &byte, 1));
    int writer = open("a", O_WRONLY | O_NONBLOCK | O_CREAT | O_TRUNC | O_APPEND, 0600);
    TELL(writer >= 0);
    TELL(fcntl(writer, F_GETFL) & (O_ACCMODE | O_NONBLOCK | O_APPEND));
    TELL(fcntl(writer, F_GETFD));
    TELL(read(reader, &byte, 1));
    TELL(write(writer, "x", 1));
    TELL(read(reader, &byte, 1));
    same_inode(reader, "a");
    same_inode(writer, "a");
    TELL(lseek(reader, 0, SEEK_CUR));
    TELL(pread(reader, &byte, 1, 0));
    TELL(ftruncate(writer, 0));
    TELL(fallocate(writer, 0, 0, 10));
    TELL(mmap(NULL, 4096, PROT_READ, MAP_SHARED, reader, 0) == MAP_FAILED);
    TELL(fsync(writer));
    TELL(fchdir(reader));
    TELL(fcntl(writer, F_SETPIPE_SZ, 8192));
    struct pollfd both[] = {{.fd = reader, .events = POLLIN}, {.fd = writer, .events = POLLOUT}};
    TELL(poll(both, 2, 0));
    TELL(both[1].revents);
    TELL(close(writer));
    TELL(poll(both, 1, 0));
    TELL(both[0].revents);
    TELL(close(reader));
    int itself = open("a", O_RDWR);
    TELL(itself >= 0);
    TELL(write(itself, "hello", 5));
    char text[8] = "";
    TELL(read(itself, text, sizeof text));
    printf("%s\n", text);
    TELL(close(itself));
    TELL(open("a", O_RDONLY | O_DIRECTORY));
    TELL(open("a", O_RDWR | O_CREAT | O_EXCL, 0600));
    TELL(open("a/", O_RDWR));
    TELL(open("a/x", O_RDWR));
    TELL(symlink("a", "link"));
    TELL(open("link", O_RDWR | O_NOFOLLOW));
    int followed = open("link", O_RDWR | O_CLOEXEC);
    TELL(followed >= 0);
    TELL(fcntl(followed, F_GETFD));
    TELL(close(followed));
    int looked = open("a", O_PATH);
    TELL(looked >= 0);
    TELL(read(looked, &byte, 1));
    struct stat status;
    TELL(fstat(looked, &status));
    printf("%o\n", status.st_mode);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", looked);
    int again = open(path, O_RDWR);
    TELL(again >= 0);
    TELL(write(again, "y", 1));
    snprintf(path, sizeof path, "/proc/self/fd/%d", again);
    int third = open(path, O_RDONLY | O_NONBLOCK);
    TELL(read(third, &byte, 1));
    char said[4096] = "", here[4096];
    MUST(getcwd(here, sizeof here) != NULL && readlink(path, said, sizeof said - 1) > 0);
    TELL(strncmp(said, here, strlen(here)) == 0 && strcmp(said + strlen(here), "/a") == 0);
    TELL(close(looked) + close(again) + close(third));
}

static void refused(void) {
    char value[8];
    TELL(truncate("a", 0));
    TELL(chdir("a"));
    TELL(opendir("a") == NULL);
    TELL(readlink("a", value, sizeof value));
    TELL(setxattr("a", "user.x", "y", 1, 0));
    TELL(getxattr("a", "user.x", value, sizeof value));
    TELL(getxattr("a", "user.", value, sizeof value));
    TELL(listxattr("a", value, 0));
    TELL(rmdir("a"));
    TELL(mkdir("a", 0700));
    TELL(chmod("a", 0777));
    TELL(execl("./a", "a", NULL));
    TELL(access("a", R_OK | W_OK | X_OK));
    TELL(chmod("a", 0644));
    struct stat status;
    TELL(stat("a/", &status));
    TELL(mkdir("directory", 0700));
    TELL(rename("directory", "a"));
    TELL(rename("a", "directory"));
}

/* Waiting for the other end. */

static void *opens_and_reads(void *argument) {
    int fd = open(argument, O_RDONLY);
    char *text = calloc(1, 64);
    MUST(fd >= 0 && read(fd, text, 63) > 0 && close(fd) == 0);
    return text;
}

static void threads(void) {
    pthread_t reader;
    void *text;
    MUST(pthread_create(&reader, NULL, opens_and_reads, "a") == 0);
    for (int i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof name, "file-%d", i);
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        MUST(fd >= 0 && write(fd, "words", 5) == 5 && close(fd) == 0 && unlink(name) == 0);
    }
    int writer = open("a", O_WRONLY);
    MUST(writer >= 0 && write(writer, "from a thread", 13) == 13 && close(writer) == 0);
    MUST(pthread_join(reader, &text) == 0);
    printf("%s\n", (char *)text);
}

static void processes(void) {
    pid_t child = fork();
    if (child == 0) {
        int writer = open("a", O_WRONLY);
        for (int i = 0; i < 1000; i++) {
            char line[32];
            int length = snprintf(line, sizeof line, "line %d\n", i);
            MUST(write(writer, line, (size_t)length) == length);
        }
        _exit(0);
    }
    FILE *stream = fopen("a", "r");
    MUST(stream != NULL);
    char line[64];
    int count = 0, sum = 0, number;
    while (fgets(line, sizeof line, stream)) {
        MUST(sscanf(line, "line %d", &number) == 1);
        count++;
        sum += number;
    }
    TELL(count);
    TELL(sum);
    TELL(fclose(stream));
    int status;
    TELL(waitpid(child, &status, 0) == child && status == 0);
    /* A descriptor that is passed on through exec. */
    int both = open("a", O_RDWR);
    char command[128];
    snprintf(command, sizeof command, "echo through exec >&%d; head -n 1 <&%d", both, both);
    TELL(system(command));
    TELL(close(both));
    TELL(system("cat a > copy & echo by name > a; wait; cat copy"));
    TELL(freopen("a", "r+", stdin) != NULL);
    TELL(write(0, "standard\n", 9));
    TELL(scanf("%63s", line));
    printf("%s\n", line);
    TELL(freopen("/dev/null", "r", stdin) != NULL);
}

static int handled, helper = -1;

static void writes_a_file(int number) {
    (void)number;
    int before = errno, fd = open("by-handler", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0) {
        handled++;
    }
    errno = before;
}

static void opens_the_other_end(int number) {
    writes_a_file(number);
    int before = errno;
    helper = open("a", O_RDWR | O_NONBLOCK);
    errno = before;
}

static void alarm_in(int ms, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    struct itimerval timer = {.it_value = {.tv_usec = ms * 1000}};
    MUST(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void interrupted(void) {
    alarm_in(50, writes_a_file, 0);
    TELL(open("a", O_RDONLY));
    alarm_in(50, writes_a_file, 0);
    TELL(open("a", O_WRONLY));
    alarm_in(50, opens_the_other_end, SA_RESTART);
    int fd = open("a", O_RDONLY);
    TELL(fd >= 0 && helper >= 0);
    TELL(close(fd) + close(helper));
    TELL(handled);
    show("by-handler");
    TELL(unlink("by-handler"));
}

static void changed(void) {
    int fd = open("a", O_RDWR);
    TELL(fchmod(fd, 0604));
    show("a");
    TELL(fchown(fd, (uid_t)-1, getegid()));
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    TELL(futimens(fd, times));
    struct stat status;
    MUST(stat("a", &status) == 0);
    printf("%ld %ld\n", (long)status.st_atim.tv_sec, (long)status.st_mtim.tv_sec);
    TELL(chmod("a", 0640));
    same_inode(fd, "a");
    TELL(link("a", "second"));
    TELL(rename("a", "moved"));
    same_inode(fd, "moved");
    show("second");
    int other = open("second", O_WRONLY | O_NONBLOCK);
    TELL(write(other, "through both", 12));
    char text[16] = "";
    TELL(read(fd, text, sizeof text));
    TELL(unlink("moved"));
    show("second");
    same_inode(fd, "second");
    TELL(unlink("second"));
    show("second");
    TELL(fstat(fd, &status));
    printf("mode %o links %lu\n", status.st_mode, (unsigned long)status.st_nlink);
    TELL(write(other, "still", 5));
    TELL(read(fd, text, sizeof text));
    TELL(fchmod(fd, 0600));
    TELL(fstat(fd, &status));
    printf("mode %o\n", status.st_mode);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = open(path, O_RDONLY | O_NONBLOCK);
    TELL(again >= 0);
    TELL(close(fd) + close(other) + close(again));
    TELL(open("second", O_RDWR));
    /* A new one of the same name is another. */
    TELL(mkfifo("second", 0600));
    TELL(open("second", O_WRONLY | O_NONBLOCK));
    MUST(creat("file", 0600) >= 0);
    TELL(rename("file", "second"));
    show("second");
    TELL(rename("b", "second"));
    show("second");
    TELL(renameat2(AT_FDCWD, "second", AT_FDCWD, "directory", RENAME_EXCHANGE));
    show("second");
    show("directory");
}

/* Whoever opens while the name is replaced all the time finds one or the other. */
static void replaced(void) {
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 300; i++) {
            MUST(mkfifo("new", 0600) == 0 && rename("new", "busy") == 0);
        }
        _exit(0);
    }
    int status, missing = 0, found = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        int fd = open("busy", O_RDWR);
        found += fd >= 0;
        missing += fd < 0 && found > 0;
        if (fd >= 0) {
            close(fd);
        }
    }
    TELL(status);
    TELL(missing);
    TELL(unlink("busy"));
}

int main(void) {
    made();
    opened();
    refused();
    threads();
    processes();
    interrupted();
    changed();
    replaced();
    return 0;
}
