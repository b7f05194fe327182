/* Children: forked ones that go on with the parent's descriptors, and started programs. */
#define _GNU_SOURCE
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "differential.h"

enum { MOST_ARGUMENTS = SLOTS + DIRECTORIES + 6 };

static void say_end(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        result(-1);
    } else if (WIFSIGNALED(status)) {
        say(" killed by %d", WTERMSIG(status));
    } else {
        say(" ended %d", WEXITSTATUS(status));
    }
}

static void fork_one(void) {
    int count = 1 + (int)draw(5);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < count; i++) {
            say("\n    ");
            run_one(1);
        }
        _exit(0);
    }
    say_end(child);
}

extern char **environ;

static pid_t start_program(char **arguments) {
    char *nothing[] = {NULL};
    char **environment = chance(30) ? nothing : environ;
    pid_t child = -1;
    switch (draw(3)) {
        case 0:
            say(" spawn");
            errno = posix_spawn(&child, world.program, NULL, NULL, arguments, environment);
            child = errno == 0 ? child : -1;
            break;
        case 1:
            say(" vfork");
            child = vfork();
            if (child == 0) {
                execve(world.program, arguments, environment);
                _exit(127);
            }
            break;
        default:
            say(" fork");
            child = fork();
            if (child == 0) {
                execve(world.program, arguments, environment);
                _exit(127);
            }
    }
    say(environment == environ ? "" : " scrubbed");
    return child;
}

static void exec_one(void) {
    char numbers[MOST_ARGUMENTS][16];
    char *arguments[MOST_ARGUMENTS + 1];
    int pipes[2];
    if (pipe(pipes) != 0) {
        result(-1);
        return;
    }
    int count = 0;
    arguments[count++] = (char *)(uintptr_t)world.program;
    arguments[count++] = (char *)(uintptr_t)"--inherited";
    arguments[count++] = world.root;
    snprintf(numbers[0], sizeof numbers[0], "%d", pipes[1]);
    arguments[count++] = numbers[0];
    for (int i = 0; i < SLOTS + DIRECTORIES; i++) {
        int fd = i < SLOTS ? world.slot[i] : world.directory[i - SLOTS];
        /* Elsewhere a number that is closed may be somebody else's by then. */
        int kept = feature("closed_at_exec") || fcntl(fd, F_GETFD) == 0;
        snprintf(numbers[i + 1], sizeof numbers[0], "%d", kept ? fd : -1);
        arguments[count++] = numbers[i + 1];
    }
    arguments[count] = NULL;
    pid_t child = start_program(arguments);
    close(pipes[1]);
    char text[2000];
    ssize_t got;
    while ((got = read(pipes[0], text, sizeof text - 1)) > 0) {
        text[got] = 0;
        say("%s", text);
    }
    close(pipes[0]);
    say_end(child);
}

static void try_descriptor(int fd) {
    struct stat status;
    say("\n    ");
    if (fstat(fd, &status) != 0) {
        result(-1);
        return;
    }
    say_status(&status);
    say(" fd=%d fl=%o", fcntl(fd, F_GETFD), fcntl(fd, F_GETFL) & ~O_TMPFILE & ~0100000);
    say(" at=%lld", S_ISDIR(status.st_mode) ? 0 : (long long)lseek(fd, 0, SEEK_CUR));
    char few[5];
    ssize_t got = read(fd, few, sizeof few);
    result(got);
    if (got > 0) {
        say_bytes(few, (size_t)got);
    }
    result(write(fd, "exec", 4));
    if (feature("exec_directories") || !S_ISDIR(status.st_mode)) {
        int below = openat(fd, "f0", O_RDONLY);
        say(" below");
        result(below < 0 ? -1 : 0);
        close(below);
    }
}

int inherited(int count, char **arguments) {
    static char line[LINE];
    line_start(line);
    snprintf(world.root, sizeof world.root, "%s", arguments[0]);
    int out = atoi(arguments[1]);
    char here[8192];
    say_path(getcwd(here, sizeof here) == NULL ? "nowhere" : here);
    struct stat status;
    result(stat("f0", &status));
    for (int i = 2; i < count; i++) {
        try_descriptor(atoi(arguments[i]));
    }
    ssize_t written = write(out, line, strlen(line));
    return written == (ssize_t)strlen(line) ? 0 : 3;
}

const struct operation process_operations[] = {
    {"fork", NULL, 4, fork_one},
    {"exec", NULL, 1, exec_one},
    {NULL, NULL, 0, NULL},
};
