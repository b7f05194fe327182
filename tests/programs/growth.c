/* Opens, writes, closes and removes files, and opens and closes one that stays, many times, from
 * several processes in one directory; fails if a process takes more memory at the end than after
 * the first tenth. Not here: what it costs the server, which the test looks at. */
#include <fcntl.h>
#include <sys/wait.h>

#include "check.h"

/* What a process may take more, in KiB: pages that the allocator or the stack touches late. */
#define SLACK_KIB 256

static long resident_kib(void) {
    char line[256];
    long kib = 0;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status) != NULL) {
        /* What is mapped of the instance is shared, and counted there. */
        if (sscanf(line, "RssAnon: %ld kB", &kib) == 1) {
            break;
        }
    }
    fclose(status);
    CHECK(kib > 0);
    return kib;
}

/* Of different lengths: some fit beside others, some need a page or several of their own. */
static size_t length_of(long round) {
    static const size_t lengths[] = {1, 100, 1000, 4096, 5000, 20000};
    return lengths[round % 6];
}

static void once(int process, long round) {
    static char bytes[20000];
    char name[64];
    size_t length = length_of(round);
    snprintf(name, sizeof name, "new-%d-%ld", process, round % 10);
    int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
    CHECK(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    CHECK(close(fd) == 0 && unlink(name) == 0);
    fd = open("old", O_RDONLY);
    CHECK(fd >= 0 && close(fd) == 0);
}

static void many(int process, long rounds) {
    long early = 0;
    for (long round = 0; round < rounds; round++) {
        if (round == rounds / 10) {
            early = resident_kib();
        }
        once(process, round);
    }
    long late = resident_kib();
    if (late > early + SLACK_KIB) {
        fprintf(stderr, "process %d: %ld KiB, then %ld KiB\n", process, early, late);
        _exit(1);
    }
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    int processes = atoi(arguments[2]);
    long rounds = atol(arguments[3]) / processes;
    enter(2, arguments);
    int fd = open("old", O_CREAT | O_WRONLY, 0644);
    CHECK(fd >= 0 && write(fd, "old", 3) == 3 && close(fd) == 0);
    for (int process = 0; process < processes; process++) {
        if (fork() == 0) {
            many(process, rounds);
            _exit(0);
        }
    }
    int failed = 0;
    for (int process = 0, status; process < processes; process++) {
        CHECK(wait(&status) > 0);
        failed |= status != 0;
    }
    return failed;
}
