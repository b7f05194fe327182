/* Descriptors that somebody else comes to have, in every way there is: the one who opened the file
 * closes it and is done, and the child writes to it then. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *self;
static int file, gate[2];

static void opens(const char *name) {
    file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    CHECK(file >= 0);
    CHECK(pipe(gate) == 0);
}

/* The child's part: waits until the other has closed, and writes. */
static void writes(int to, int when) {
    char byte;
    if (read(when, &byte, 1) != 1 || write(to, "child\n", 6) != 6 || close(to) != 0)
        _exit(1);
}

static void let_go(void) {
    struct stat stat_;
    CHECK(close(file) == 0);
    /* The server has heard of it once it has answered something. */
    CHECK(mkdir("asked", 0700) == 0 && rmdir("asked") == 0);
    CHECK(stat(".", &stat_) == 0);
    CHECK(write(gate[1], "g\n", 2) == 2);
}

static void ends(const char *name, pid_t child) {
    char found[16] = "";
    int status = 0, again;
    if (child > 0)
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int round = 0; round < 6000 && strcmp(found, "child\n") != 0; round++) {
        again = open(name, O_RDONLY);
        CHECK(again >= 0);
        memset(found, 0, sizeof found);
        CHECK(read(again, found, sizeof found - 1) >= 0);
        close(again);
        if (child <= 0)
            usleep(10000);
    }
    if (strcmp(found, "child\n") != 0)
        fprintf(stderr, "%s: %s\n", name, found);
    CHECK(strcmp(found, "child\n") == 0);
    close(gate[0]);
    close(gate[1]);
}

static void forked(const char *name, pid_t (*make)(void)) {
    opens(name);
    pid_t child = make();
    CHECK(child >= 0);
    if (child == 0) {
        writes(file, gate[0]);
        _exit(0);
    }
    let_go();
    ends(name, child);
}

static int cloned_part(void *unused) {
    (void)unused;
    writes(file, gate[0]);
    return 0;
}

static void cloned(const char *name) {
    static char stack[65536];
    opens(name);
    pid_t child = clone(cloned_part, stack + sizeof stack, SIGCHLD, NULL);
    CHECK(child > 0);
    let_go();
    ends(name, child);
}

static void executed(const char *name, int by_spawn) {
    char to[16], when[16];
    char *arguments[] = {(char *)self, "child", to, when, NULL};
    pid_t child;
    opens(name);
    snprintf(to, sizeof to, "%d", file);
    snprintf(when, sizeof when, "%d", gate[0]);
    if (by_spawn) {
        CHECK(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    } else {
        child = vfork();
        if (child == 0) {
            execv(self, arguments);
            _exit(9);
        }
    }
    let_go();
    ends(name, child);
}

static void by_shell(const char *name, int by_popen) {
    char command[128];
    opens(name);
    snprintf(command, sizeof command, "(read x <&%d; echo child >&%d) &", gate[0], file);
    FILE *stream = NULL;
    if (by_popen)
        CHECK((stream = popen(command, "w")) != NULL);
    else
        CHECK(system(command) == 0);
    let_go();
    ends(name, 0);
    if (stream)
        CHECK(pclose(stream) == 0);
}

static void passed(const char *name) {
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(pipe(gate) == 0);
    pid_t child = fork();
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    if (child == 0) {
        int received;
        if (recvmsg(pair[1], &message, 0) != 1)
            _exit(2);
        memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof received);
        writes(received, gate[0]);
        _exit(0);
    }
    file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    CHECK(file >= 0);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof file);
    memcpy(CMSG_DATA(head), &file, sizeof file);
    CHECK(sendmsg(pair[0], &message, 0) == 1);
    let_go();
    ends(name, child);
    close(pair[0]);
    close(pair[1]);
}

/* Another number of the same process. */
static void copied(const char *name, int (*copy)(int)) {
    opens(name);
    int other = copy(file);
    CHECK(other >= 0);
    let_go();
    writes(other, gate[0]);
    ends(name, 0);
}

static int by_dup2(int fd) { return dup2(fd, 40); }
static int by_fcntl(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 50); }

/* Who replaces its own process keeps what it has open. */
static void replaced(const char *name) {
    opens(name);
    pid_t child = fork();
    if (child == 0) {
        char to[16], when[16];
        char *arguments[] = {(char *)self, "child", to, when, NULL};
        close(file);
        file = open("replaced-itself", O_CREAT | O_WRONLY, 0644);
        snprintf(to, sizeof to, "%d", file);
        snprintf(when, sizeof when, "%d", gate[0]);
        execv(self, arguments);
        _exit(9);
    }
    let_go();
    ends("replaced-itself", child);
}

static volatile int over;

/* Opens, writes and closes; the answers are those of a process that nobody forks. */
static void *opens_on(void *name) {
    for (int round = 0; !over; round++) {
        int fd = open(name, O_CREAT | O_RDWR, 0644);
        CHECK(fd >= 0);
        for (int piece = 0; piece < 3; piece++) {
            CHECK(pwrite(fd, "piece\n", 6, 6 * piece) == 6);
            usleep(round % 3 * 20);
        }
        CHECK(close(fd) == 0);
    }
    return NULL;
}

/* Children that close whatever they got, forked while other threads open files. */
static void crossed(void) {
    pthread_t threads[3];
    char names[3][16];
    for (int at = 0; at < 3; at++) {
        snprintf(names[at], sizeof names[at], "crossed-%d", at);
        CHECK(pthread_create(&threads[at], NULL, opens_on, names[at]) == 0);
    }
    for (int round = 0; round < 150; round++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            for (int fd = 3; fd < 40; fd++)
                close(fd);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    over = 1;
    for (int at = 0; at < 3; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
}

int main(int count, char **arguments) {
    self = "/proc/self/exe";
    if (count > 3 && strcmp(arguments[1], "child") == 0) {
        writes(atoi(arguments[2]), atoi(arguments[3]));
        return 0;
    }
    enter(count, arguments);
    forked("fork", fork);
    forked("_Fork", _Fork);
    cloned("clone");
    executed("vfork", 0);
    executed("posix_spawn", 1);
    by_shell("system", 0);
    by_shell("popen", 1);
    passed("sendmsg");
    copied("dup", dup);
    copied("dup2", by_dup2);
    copied("fcntl", by_fcntl);
    replaced("exec");
    crossed();
    puts("every child wrote");
    return 0;
}
