/* What programs are told of their own handlers, and that each signal reaches its handler once, in
 * order and with what came with it, while the program uses files all the time: usage: handlers
 * DIRECTORY. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

#define QUEUED 400

static volatile sig_atomic_t came, last, wrong;
static sigjmp_buf out;

static void simple(int number) {
    came += number == SIGUSR2;
}

static void informed(int number, siginfo_t *info, void *context) {
    wrong += number != SIGRTMIN || info->si_code != SI_QUEUE || context == NULL;
    wrong += info->si_value.sival_int != last + 1;
    last = info->si_value.sival_int;
}

static void leap(int number) {
    (void)number;
    siglongjmp(out, 1);
}

static struct sigaction now(int number) {
    struct sigaction action;
    CHECK(sigaction(number, NULL, &action) == 0);
    return action;
}

static void actions(void) {
    struct sigaction new = {.sa_handler = simple, .sa_flags = SA_RESETHAND | SA_NODEFER}, old;
    sigemptyset(&new.sa_mask);
    sigaddset(&new.sa_mask, SIGHUP);
    CHECK(sigaction(SIGUSR2, &new, &old) == 0 && old.sa_handler == SIG_DFL);
    old = now(SIGUSR2);
    CHECK(old.sa_handler == simple && sigismember(&old.sa_mask, SIGHUP) == 1);
    CHECK((old.sa_flags & (SA_RESETHAND | SA_NODEFER | SA_SIGINFO)) == (SA_RESETHAND | SA_NODEFER));
    CHECK(raise(SIGUSR2) == 0 && came == 1 && now(SIGUSR2).sa_handler == SIG_DFL);
    CHECK(signal(SIGUSR2, simple) == SIG_DFL && (now(SIGUSR2).sa_flags & SA_RESTART) != 0);
    CHECK(siginterrupt(SIGUSR2, 1) == 0 && (now(SIGUSR2).sa_flags & SA_RESTART) == 0);
    CHECK(signal(SIGUSR2, simple) == simple && (now(SIGUSR2).sa_flags & SA_RESTART) == 0);
    CHECK(raise(SIGUSR2) == 0 && raise(SIGUSR2) == 0 && came == 3);
    CHECK(sysv_signal(SIGUSR2, simple) == simple && raise(SIGUSR2) == 0 && came == 4);
    CHECK(now(SIGUSR2).sa_handler == SIG_DFL && signal(SIGUSR2, SIG_IGN) == SIG_DFL);
    CHECK(raise(SIGUSR2) == 0 && signal(SIGUSR2, simple) == SIG_IGN);
    CHECK(signal(SIGKILL, simple) == SIG_ERR && errno == EINVAL);
    CHECK(signal(999, simple) == SIG_ERR && errno == EINVAL && sigaction(0, NULL, &old) == -1);
    CHECK(now(SIGUSR2).sa_handler == simple);
}

static void use(const char *name) {
    static char bytes[30000];
    struct stat status;
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, bytes, sizeof bytes) == sizeof bytes);
    CHECK(pread(fd, bytes, sizeof bytes, 0) == sizeof bytes && close(fd) == 0);
    CHECK(stat(name, &status) == 0 && status.st_size == sizeof bytes && unlink(name) == 0);
}

static void queue(void) {
    struct sigaction action = {.sa_sigaction = informed, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&action.sa_mask);
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0 && now(SIGRTMIN).sa_sigaction == informed);
    pid_t parent = getpid(), child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int number = 1; number <= QUEUED; number++) {
            union sigval value = {.sival_int = number};
            CHECK(sigqueue(parent, SIGRTMIN, value) == 0);
            usleep(300);
        }
        _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        use("queue");
    }
    use("queue");
    CHECK(status == 0 && wrong == 0 && last == QUEUED);
}

/* Programs leave a long call by a jump out of the handler of a timer. */
static void jumps(void) {
    static volatile int left;
    struct itimerval soon = {.it_value = {.tv_usec = 700}};
    CHECK(signal(SIGALRM, leap) == SIG_DFL);
    while (left < 50) {
        if (sigsetjmp(out, 1) == 0) {
            CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
            for (;;) {
                int fd = open("jumps", O_RDWR | O_CREAT, 0644);
                CHECK(fd >= 0 && write(fd, "more", 4) == 4 && close(fd) == 0);
            }
        }
        left++;
    }
    use("jumps");
}

/* A program under the directory starts with nothing blocked, whatever came on the way there. */
static void execs(void) {
    static const char script[] = "#!/bin/sh\nwhile read -r name mask; do\n"
                                 "[ \"$name\" != SigBlk: ] || [ \"$mask\" = 0000000000000000 ] || "
                                 "exit 1\ndone < /proc/self/status\n";
    struct sigaction action = {.sa_handler = simple, .sa_flags = SA_RESTART};
    CHECK(sigemptyset(&action.sa_mask) == 0 && sigaction(SIGWINCH, &action, NULL) == 0);
    int fd = open("blocked", O_WRONLY | O_CREAT, 0755), status;
    CHECK(fd >= 0 && write(fd, script, sizeof script - 1) > 0 && close(fd) == 0);
    for (int round = 0; round < 20; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            execl("./blocked", "blocked", (char *)NULL);
            _exit(99);
        }
        while (waitpid(child, &status, WNOHANG) == 0) {
            kill(child, SIGWINCH);
            usleep(40);
        }
        CHECK(status == 0);
    }
    CHECK(unlink("blocked") == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    enter(count, arguments);
    actions();
    queue();
    jumps();
    execs();
    puts("handlers as they should be");
    return 0;
}
