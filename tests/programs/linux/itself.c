/* What a program that runs from there finds out about itself, and others about it. */
#include <fcntl.h>
#include <limits.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "told.h"
#include "myself.h"

static char text[PATH_MAX];

/* A path below the directory, as if that were the root. */
static const char *below(const char *path) {
    const char *directory = getenv("TERRAL_DIR");
    size_t length = strlen(directory);
    return strncmp(path, directory, length) == 0 ? path + length : path;
}

static void link_of(const char *what, const char *link) {
    ssize_t length = readlink(link, text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    printf("%s: %s %s\n", what, below(text), length < 0 ? strerrorname_np(errno) : "");
    fflush(stdout);
}

static void tell(const char *name) {
    char title[17] = "";
    struct stat itself, named;
    printf("I am %s\n", name);
    link_of("my program", "/proc/self/exe");
    ssize_t length = readlink("/proc/self/exe", text, 3);
    printf("cut: %ld\n", (long)length);
    printf("%s\n", realpath("/proc/self/exe", text) ? below(text) : strerrorname_np(errno));
    MUST(prctl(PR_GET_NAME, title) == 0);
    printf("called %s\n", title);
    FILE *comm = fopen("/proc/self/comm", "r");
    MUST(comm && fgets(title, sizeof title, comm));
    printf("called %s", title);
    MUST(stat("/proc/self/exe", &itself) == 0 && stat(name, &named) == 0);
    printf("as long: %d\n", itself.st_size == named.st_size);
    fflush(stdout);
}

static void run(const char *path, const char *name) {
    pid_t pid = fork();
    if (pid == 0) {
        execl(path, name, "tell", path, NULL);
        _exit(errno);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int count, char **arguments) {
    if (count > 2 && strcmp(arguments[1], "tell") == 0) {
        tell(arguments[2]);
        return 0;
    }
    if (count > 1) {
        char letter;
        MUST(write(9, "x", 1) == 1);
        return (int)read(0, &letter, 1);
    }
    copy_myself("program");
    MUST(mkdir("directory", 0755) == 0 && symlink("../program", "directory/other") == 0);
    run("./program", "program");
    run("./program", "called-otherwise");
    run("directory/other", "other");
    MUST(rename("program", "a-name-that-is-longer-than-others") == 0);
    run("./a-name-that-is-longer-than-others", "long");
    MUST(rename("a-name-that-is-longer-than-others", "program") == 0);
    int in[2], out[2];
    char link[64], letter;
    MUST(pipe(in) == 0 && pipe(out) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 9);
        close(in[1]);
        execl("./program", "program", "wait", NULL);
        _exit(errno);
    }
    close(in[0]);
    MUST(read(out[0], &letter, 1) == 1);
    snprintf(link, sizeof link, "/proc/%d/exe", pid);
    link_of("its program", link);
    MUST(rename("program", "directory/moved") == 0);
    link_of("moved", link);
    MUST(unlink("directory/moved") == 0);
    ssize_t length = readlink(link, text, sizeof text);
    printf("removed: %d\n", length > 10 && memcmp(text + length - 10, " (deleted)", 10) == 0);
    close(in[1]);
    waitpid(pid, NULL, 0);
    return 0;
}
