/* Threads that use files of their own while the process forks: the same answers from any POSIX
 * directory, and no child that waits for ever. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

#include "check.h"

enum { THREADS = 6, ROUNDS = 300, CHILDREN = 60 };

extern char **environ;

static void round_trip(const char *name, int number) {
    char text[64], back[64] = {0};
    int length = snprintf(text, sizeof text, "%s round %d", name, number);
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(fd >= 0);
    int copy = dup(fd);
    CHECK(copy >= 0);
    CHECK(write(fd, text, (size_t)length) == length);
    CHECK(close(fd) == 0);
    CHECK(pread(copy, back, sizeof back, 0) == length && strcmp(text, back) == 0);
    CHECK(close(copy) == 0 && unlink(name) == 0);
}

static void *work(void *argument) {
    char name[32];
    snprintf(name, sizeof name, "thread-%ld", (long)argument);
    for (int i = 0; i < ROUNDS; i++) {
        round_trip(name, i);
    }
    return NULL;
}

int main(int count, char **arguments) {
    enter(count, arguments);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    }
    int shared = open("shared", O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0644);
    CHECK(shared >= 0);
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        pid_t child = i % 3 == 0 ? vfork() : fork();
        if (child == 0) {
            if (i % 3 == 0) {
                execl("/bin/true", "true", (char *)NULL);
                _exit(127);
            }
            char name[32];
            snprintf(name, sizeof name, "child-%d", i);
            round_trip(name, i);
            CHECK(write(shared, "c", 1) == 1);
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
        char *words[] = {"sh", "-c", "exit 3", NULL};
        CHECK(posix_spawnp(&child, "sh", NULL, NULL, words, environ) == 0);
        CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(lseek(shared, 0, SEEK_END) == CHILDREN - CHILDREN / 3);
    CHECK(close(shared) == 0 && unlink("shared") == 0);
    return 0;
}
