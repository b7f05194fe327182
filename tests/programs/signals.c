/* Reads, writes, renames, lists and removes while signals arrive, whose handler uses files, too:
 * usage: signals DIRECTORY restart|interrupt COUNT-FILE. Calls that a signal interrupted are done
 * again. The number of signals goes to COUNT-FILE. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "check.h"

#define ROUNDS 300
#define BYTES 50000

static volatile sig_atomic_t handled, noted;
static char own[16] = "mark";

/* Only calls that are safe in handlers. What it interrupts may be a call on the same files, and
 * then it comes after that; only if that waits long for a server is it told EDEADLK. */
static void handler(int number) {
    (void)number;
    int before = errno;
    struct stat status;
    handled++;
    int fd = open(own, O_WRONLY | O_APPEND | O_CREAT, 0644);
    if (fd < 0) {
        CHECK(errno == EDEADLK);
        errno = before;
        return;
    }
    noted++;
    CHECK(write(fd, "signal\n", 7) == 7);
    CHECK(fstat(fd, &status) == 0 && status.st_size == 7 * (long)noted);
    CHECK(close(fd) == 0 && stat(own, &status) == 0 && status.st_size == 7 * (long)noted);
    errno = before;
}

static void listen_for(int number, int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigfillset(&action.sa_mask);
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void write_all(int fd, const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t count = write(fd, bytes, length);
        CHECK(count > 0 || errno == EINTR);
        bytes += count > 0 ? count : 0;
        length -= count > 0 ? (size_t)count : 0;
    }
}

static void read_all(int fd, char *bytes, size_t length) {
    while (length > 0) {
        ssize_t count = read(fd, bytes, length);
        CHECK(count > 0 || (count < 0 && errno == EINTR));
        bytes += count > 0 ? count : 0;
        length -= count > 0 ? (size_t)count : 0;
    }
}

static int opened(const char *name, int flags) {
    int fd;
    do {
        fd = open(name, flags, 0644);
    } while (fd < 0 && errno == EINTR);
    CHECK(fd >= 0);
    return fd;
}

static void once(int round) {
    static char written[BYTES], seen[BYTES];
    struct stat status;
    size_t length = (size_t)(round * 7919) % BYTES + 1;
    memset(written, 'a' + round % 26, length);
    int fd = opened("new", O_RDWR | O_CREAT | O_EXCL);
    write_all(fd, written, length);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    read_all(fd, seen, length);
    CHECK(memcmp(seen, written, length) == 0 && close(fd) == 0);
    CHECK(rename("new", "old") == 0 && stat("new", &status) == -1 && errno == ENOENT);
    CHECK(stat("old", &status) == 0 && (size_t)status.st_size == length);
    fd = opened("log", O_WRONLY | O_APPEND | O_CREAT);
    write_all(fd, written, 100 < length ? 100 : length);
    CHECK(close(fd) == 0);
    DIR *directory = opendir(".");
    CHECK(directory != NULL);
    int names = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        names += strcmp(entry->d_name, "old") == 0 || strcmp(entry->d_name, "log") == 0;
    }
    CHECK(names == 2 && closedir(directory) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    int flags = strcmp(arguments[2], "restart") == 0 ? SA_RESTART : 0;
    enter(2, arguments);
    listen_for(SIGALRM, flags);
    listen_for(SIGUSR1, flags);
    struct itimerval often = {.it_interval = {.tv_usec = 1700}, .it_value = {.tv_usec = 1700}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        once(round);
    }
    signal(SIGALRM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    struct stat status;
    CHECK(stat(own, &status) == 0 && status.st_size == 7 * (long)noted && unlink(own) == 0);
    FILE *told = fopen(arguments[3], "a");
    CHECK(told != NULL && fprintf(told, "%d %d\n", (int)handled, (int)noted) > 0);
    CHECK(fclose(told) == 0);
    puts("the same as without signals");
    return 0;
}
