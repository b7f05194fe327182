/* A child that is made by a system call of the program's own goes on with one descriptor that its
 * parent has closed, and one that it has not; then so does a program that such a call starts. The
 * word says whether such calls are caught: if not, what was closed may be lost. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"
#include "raw.h"

/* `lost`: the error that may be met, or none. */
static void reads(int fd, int lost) {
    char byte;
    ssize_t length = pread(fd, &byte, 1, 0);
    CHECK((length == 1 && byte == 'x') || (lost && length == -1 && errno == lost));
}

int main(int count, char **arguments) {
    int caught = strcmp(arguments[1], "caught") == 0;
    if (count == 4) {
        reads(atoi(arguments[2]), caught ? 0 : EISDIR);
        reads(atoi(arguments[3]), 0);
        return 0;
    }
    int go_on[2], fd = open("file", O_RDWR | O_CREAT, 0600), other = open("file", O_RDWR), status;
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && other >= 0 && pipe(go_on) == 0);
    pid_t child = (pid_t)raw_call(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    CHECK(child >= 0);
    if (child == 0) {
        char byte, numbers[2][20];
        char *again[] = {arguments[0], arguments[1], numbers[0], numbers[1], NULL};
        CHECK(read(go_on[0], &byte, 1) == 1);
        reads(fd, caught ? 0 : EBADF);
        reads(other, 0);
        snprintf(numbers[0], sizeof numbers[0], "%d", fd);
        snprintf(numbers[1], sizeof numbers[1], "%d", other);
        raw_call(SYS_execve, (long)arguments[0], (long)again, (long)environ, 0, 0, 0);
        _exit(9);
    }
    CHECK(close(fd) == 0 && write(go_on[1], "g", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    return puts("as promised") < 0;
}
