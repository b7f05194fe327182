/* A program that runs is not written, and what may be written is not run. */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "told.h"
#include "myself.h"

extern char **environ;

/* A program that runs until its input ends; it has said that it runs. */
struct running {
    pid_t pid;
    int input;
};

static struct running start(const char *name, const char *how) {
    int in[2], out[2];
    char letter;
    MUST(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 9);
        execl(name, name, how, NULL);
        _exit(errno);
    }
    close(in[0]);
    close(out[1]);
    MUST(read(out[0], &letter, 1) == 1);
    close(out[0]);
    return (struct running){pid, in[1]};
}

static void end(struct running it) {
    close(it.input);
    waitpid(it.pid, NULL, 0);
}

/* What a child gets that executes `name`: the errno, or 0 and it has run. */
static void execute(const char *what, const char *name, int fd) {
    pid_t pid = fork();
    if (pid == 0) {
        char *arguments[] = {(char *)name, (char *)"nothing", NULL};
        if (fd >= 0) {
            fexecve(fd, arguments, environ);
        } else {
            execve(name, arguments, environ);
        }
        _exit(errno);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    int number = WEXITSTATUS(status);
    printf("%s: %s\n", what, number ? strerrorname_np(number) : "it runs");
    fflush(stdout);
}

static int can_be_written(const char *name) {
    int fd = open(name, O_RDWR);
    return fd >= 0 ? close(fd) : -1;
}

static void while_it_runs(const char *name) {
    struct timespec times[2] = {{1, 0}, {2, 0}};
    struct stat status;
    TELL(open(name, O_WRONLY));
    TELL(open(name, O_RDWR));
    TELL(open(name, O_WRONLY | O_APPEND));
    TELL(open(name, O_WRONLY | O_TRUNC));
    TELL(open(name, O_RDONLY | O_TRUNC));
    TELL(open(name, O_RDWR | O_CREAT, 0644));
    TELL(open(name, O_RDWR | O_CREAT | O_EXCL, 0644));
    TELL(creat(name, 0644));
    TELL(truncate(name, 5));
    MUST(stat(name, &status) == 0);
    TELL(truncate(name, status.st_size));
    TELL(close(open(name, O_RDONLY)));
    TELL(close(open(name, O_PATH)));
    TELL(chmod(name, 0711));
    TELL(chmod(name, 0755));
    TELL(utimensat(AT_FDCWD, name, times, 0));
    TELL(link(name, "also"));
    TELL(can_be_written("also"));
    TELL(rename("also", "moved"));
    TELL(can_be_written("moved"));
    TELL(unlink("moved"));
    execute("again", name, -1);
    int fd = open(name, O_RDONLY);
    TELL(ftruncate(fd, 0));
    execute("by its descriptor", name, fd);
    close(fd);
    fd = open(name, O_PATH);
    execute("by a descriptor of its path", name, fd);
    close(fd);
}

static void running(void) {
    struct running it = start("program", "wait");
    while_it_runs("program");
    struct running other = start("program", "wait");
    end(it);
    TELL(can_be_written("program"));
    end(other);
    TELL(can_be_written("program"));
    it = start("program", "wait");
    kill(it.pid, SIGKILL);
    end(it);
    TELL(can_be_written("program"));
    /* The process that was started becomes another program. */
    it = start("program", "become");
    TELL(can_be_written("program"));
    end(it);
    /* It leaves a child that runs on. */
    it = start("program", "fork");
    waitpid(it.pid, NULL, 0);
    TELL(can_be_written("program"));
    close(it.input);
    for (int i = 0; i < 6000 && can_be_written("program") != 0; i++) {
        usleep(10000);
    }
    TELL(can_be_written("program"));
    /* What it is called now is something else. */
    it = start("program", "wait");
    MUST(rename("program", "old") == 0);
    copy_myself("program");
    TELL(can_be_written("program"));
    TELL(can_be_written("old"));
    end(it);
    TELL(can_be_written("old"));
    MUST(unlink("old") == 0);
}

static void written(void) {
    int fd = open("program", O_WRONLY | O_CLOEXEC);
    execute("open for writing", "program", -1);
    pid_t child;
    char *arguments[] = {(char *)"program", (char *)"nothing", NULL};
    TELL(posix_spawn(&child, "./program", NULL, NULL, arguments, environ));
    int reader = open("program", O_RDONLY | O_CLOEXEC);
    execute("by a descriptor", "program", reader);
    close(reader);
    close(fd);
    execute("closed", "program", -1);
    fd = open("program", O_RDWR | O_CLOEXEC);
    execute("by the one for writing", "program", fd);
    int copy = dup(fd);
    close(fd);
    execute("a copy is left", "program", -1);
    close(copy);
    execute("none is left", "program", -1);
    fd = open("program", O_RDWR | O_CLOEXEC);
    int ends[2];
    char letter;
    MUST(pipe(ends) == 0);
    child = fork();
    if (child == 0) {
        close(ends[1]);
        _exit((int)read(ends[0], &letter, 1));
    }
    close(ends[0]);
    close(fd);
    execute("a child has it", "program", -1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends[1]);
    execute("the child is dead", "program", -1);
    child = fork();
    if (child == 0) {
        fd = open("program", O_RDWR);
        _exit(fd < 0);
    }
    waitpid(child, NULL, 0);
    execute("whoever had it ended", "program", -1);
    fd = open("program", O_RDWR);
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(map != MAP_FAILED);
    close(fd);
    execute("mapped for writing", "program", -1);
    munmap(map, 4096);
    execute("not mapped", "program", -1);
}

static void scripts(void) {
    int fd = open("script", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
    MUST(write(fd, "#!./program wait\n", 17) == 17);
    execute("a script that is written", "script", -1);
    close(fd);
    struct running it = start("./script", "");
    TELL(can_be_written("script"));
    TELL(can_be_written("program"));
    end(it);
    TELL(can_be_written("program"));
}

static void what_cannot_be_run(void) {
    MUST(mkdir("directory", 0755) == 0);
    close(open("plain", O_WRONLY | O_CREAT, 0644));
    close(open("empty", O_WRONLY | O_CREAT, 0755));
    execute("a directory", "directory", -1);
    execute("nothing", "missing", -1);
    execute("not for execution", "plain", -1);
    execute("no program", "empty", -1);
    TELL(can_be_written("empty"));
    const char *names[] = {"directory", "plain", "empty"};
    for (int i = 0; i < 3; i++) {
        int fd = open(names[i], O_RDONLY | O_CLOEXEC);
        execute(names[i], names[i], fd);
        close(fd);
    }
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "";
    char letter;
    if (strcmp(how, "nothing") == 0) {
        return 0;
    }
    if (strcmp(how, "fork") == 0 && fork() != 0) {
        return 0;
    }
    if (strcmp(how, "become") == 0) {
        execl("/bin/sh", "sh", "-c", "echo >&9; exec 9>&-; read line", NULL);
    }
    if (count > 1) {
        MUST(write(9, "x", 1) == 1 && close(9) == 0);
        return (int)read(0, &letter, 1);
    }
    copy_myself("program");
    running();
    written();
    scripts();
    what_cannot_be_run();
    return 0;
}
