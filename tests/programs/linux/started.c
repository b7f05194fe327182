/* Starts a program in one of the ways there are, with the prefix as its argument; ends with the
 * errno if that is refused. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **arguments) {
    const char *way = arguments[1], *directory = arguments[2], *name = arguments[3];
    char *its[] = {(char *)name, arguments[4], NULL};
    if (count != 5 || setenv("PATH", directory, 1) != 0) {
        return 1;
    }
    int at = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(at, name, O_RDONLY | O_CLOEXEC);
    if (strcmp(way, "posix_spawnp") == 0) {
        pid_t child;
        int status, failed = posix_spawnp(&child, name, NULL, NULL, its, environ);
        if (failed == 0) {
            waitpid(child, &status, 0);
        }
        return failed;
    }
    if (strcmp(way, "fexecve") == 0) {
        fexecve(fd, its, environ);
    } else if (strcmp(way, "execveat") == 0) {
        execveat(at, name, its, environ, 0);
    } else {
        execvp(name, its);
    }
    return errno;
}
