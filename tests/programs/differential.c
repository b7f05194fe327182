/* See differential.h. Usage:
 *   differential --mode MODE --root DIR [--seed N] [--count N] [--processes N] [--features A,B]
 *                [--keep FILE] [--output FILE] [--pester MICROSECONDS] [--launcher FILE]
 * MODE is `sequence` (one operation at a time, whichever process does it), `apart` (all processes
 * at once, each in a directory of its own), `race` (all at once in one, with answers that do not
 * depend on the order) or `tree` (only what is below DIR). FILE holds the numbers of the operations
 * to do. Each process is pestered that often by a signal, whose handler looks at DIR. Processes are
 * started as `LAUNCHER INDEX PROGRAM OPTIONS`, which runs the program on another machine, in the
 * same process and with the descriptors that it has. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "differential.h"

enum { END = -1, PATIENCE_MS = 30000, MOST_COUNT = 1000000, MOST_ARGUMENTS = 40 };

static struct {
    const char *mode, *root, *keep, *output, *launcher, *part;
    uint64_t seed;
    int count, processes, pester;
} options = {"sequence", NULL, NULL, NULL, NULL, NULL, 1, 1000, 3, 0};

static char **program_arguments;

/* What all processes share, then what they race with. */
static struct {
    pid_t pids[MOST_PROCESSES];
    char lines[MOST_PROCESSES][LINE];
} *shared;

static int shared_memory;

/* What a process is told of. */
struct part {
    int index, from, to, report;
};

static struct {
    int to, from;
} channels[MOST_PROCESSES];

static FILE *output;

static void fail(const char *what) {
    fprintf(stderr, "differential: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void look(int number) {
    (void)number;
    int before = errno;
    struct stat status;
    if (stat(options.root, &status) != 0 && errno != EDEADLK) {
        _exit(errno);
    }
    errno = before;
}

/* A timer that no child has, nor what this process executes. */
static void be_pestered(void) {
    struct sigaction action = {.sa_handler = look, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec often = {{0, options.pester * 1000L}, {0, options.pester * 1000L}};
    timer_t timer;
    if (options.pester > 0 &&
        (sigaction(SIGUSR1, &action, NULL) != 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) ||
         timer_settime(timer, 0, &often, NULL) != 0)) {
        fail("timer");
    }
}

static const struct operation *pick(int in_child) {
    const struct operation *const families[] = {
        data_operations,      descriptor_operations, name_operations,   attribute_operations,
        directory_operations, stream_operations,     process_operations};
    size_t count = sizeof families / sizeof *families - (in_child ? 2 : 0);
    for (;;) {
        uint32_t total = 0;
        const struct operation *picked = NULL;
        for (size_t i = 0; i < count; i++) {
            for (const struct operation *one = families[i]; one->name != NULL; one++) {
                int enabled = one->feature == NULL || feature(one->feature);
                total += enabled ? (uint32_t)one->weight : 0;
                if (enabled && draw(total) < (uint32_t)one->weight) {
                    picked = one;
                }
            }
        }
        if (picked != NULL) {
            return picked;
        }
    }
}

void run_one(int in_child) {
    find_depth();
    const struct operation *operation = pick(in_child);
    say("%s", operation->name);
    operation->run();
}

static void begin_world(int index, const char *root) {
    world.index = index;
    world.processes = options.processes;
    world.pids = shared->pids;
    for (int i = 0; i < DIRECTORIES; i++) {
        world.directory[i] = -1;
    }
    snprintf(world.root, sizeof world.root, "%s", root);
    if (chdir(root) != 0) {
        fail(root);
    }
    for (int i = 0; i < SLOTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i % 3);
        world.slot[i] = open(name, O_RDWR | O_CREAT, 0644);
    }
}

static void end_world(void) {
    for (int i = 0; i < STREAMS; i++) {
        if (world.stream[i] != NULL) {
            say(" stream %d", fclose(world.stream[i]));
        }
    }
    for (int i = 0; i < SLOTS; i++) {
        if (world.slot[i] >= 0) {
            say(" slot %d", close(world.slot[i]));
        }
    }
}

static void do_numbered(int index, int number) {
    line_start(shared->lines[index]);
    if (number == END) {
        end_world();
        return;
    }
    draw_from(options.seed, (uint64_t)number);
    draw((uint32_t)options.processes);
    run_one(0);
}

static void serve(int index) {
    int number;
    while (read(channels[index].from, &number, sizeof number) == sizeof number) {
        do_numbered(index, number);
        if (write(channels[index].to, "", 1) != 1 || number == END) {
            _exit(0);
        }
    }
    _exit(0);
}

static int beyond(int fd) {
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OWN);
    if (moved < 0) {
        fail("descriptors");
    }
    close(fd);
    return moved;
}

/* What leads up from a process's root stays apart, too. */
static void work_apart(int index, FILE *report) {
    char above[2048], root[2100];
    snprintf(above, sizeof above, "%s/p%d", options.root, index);
    snprintf(root, sizeof root, "%s/in", above);
    if (mkdir(above, 0755) != 0 || mkdir(root, 0755) != 0) {
        fail(root);
    }
    begin_world(index, root);
    options.seed = options.seed * 31 + (uint64_t)index;
    for (int number = 0; number < options.count / options.processes; number++) {
        do_numbered(index, number);
        fprintf(report, "%d p%d %s\n", number, index, shared->lines[index]);
        fflush(report);
    }
    do_numbered(index, END);
    fprintf(report, "p%d ends%s\n", index, shared->lines[index]);
}

/* Goes on as what the launcher starts. */
static void launch(struct part part) {
    char index[16], text[80];
    snprintf(index, sizeof index, "%d", part.index);
    int length = snprintf(text, sizeof text, "%d,%d,%d,%d", part.from, part.to, part.report,
                          shared_memory);
    int left[] = {part.from, part.to, part.report, shared_memory};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        if (left[i] >= 0 && fcntl(left[i], F_SETFD, 0) != 0) {
            fail("descriptors");
        }
    }
    char *arguments[MOST_ARGUMENTS + 5] = {(char *)(uintptr_t)options.launcher, index};
    int count = 2;
    for (char **one = program_arguments; *one != NULL && count < MOST_ARGUMENTS; one++) {
        arguments[count++] = *one;
    }
    arguments[count++] = (char *)(uintptr_t)"--part";
    arguments[count++] = length > 0 ? text : NULL;
    execv(options.launcher, arguments);
    fail(options.launcher);
}

static void do_sequence(struct part part) {
    channels[part.index].from = part.from;
    channels[part.index].to = part.to;
    begin_world(part.index, options.root);
    be_pestered();
    if (write(part.to, "", 1) != 1) {
        _exit(1);
    }
    serve(part.index);
}

static void do_part(struct part part) {
    if (strcmp(options.mode, "sequence") == 0) {
        do_sequence(part);
    }
    FILE *report = fdopen(part.report, "w+");
    alarm(10 * PATIENCE_MS / 1000);
    be_pestered();
    if (strcmp(options.mode, "race") == 0) {
        begin_world(part.index, options.root);
        race(part.index, options.count, options.root, shared + 1);
    } else {
        work_apart(part.index, report);
    }
    fflush(report);
    _exit(0);
}

static void start_part(struct part part) {
    pid_t parent = getpid();
    pid_t child = fork();
    /* Both say it: a child may need it before its parent goes on. */
    shared->pids[part.index] = child == 0 ? getpid() : child;
    if (child != 0) {
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    if (options.launcher != NULL) {
        launch(part);
    }
    do_part(part);
}

/* Goes on with what a launched process was told of. */
static void take_part(void) {
    struct part part = {-1, -1, -1, -1};
    if (sscanf(options.part, "%d,%d,%d,%d", &part.from, &part.to, &part.report,
               &shared_memory) != 4) {
        fail("--part");
    }
    for (int i = 0; i < options.processes; i++) {
        part.index = shared->pids[i] == getpid() ? i : part.index;
    }
    int left[] = {part.from, part.to, part.report};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        if (left[i] >= 0 && fcntl(left[i], F_SETFD, FD_CLOEXEC) != 0) {
            fail("descriptors");
        }
    }
    do_part(part);
}

static void start_processes(void) {
    for (int i = 0; i < options.processes; i++) {
        int to[2], from[2];
        if (pipe(to) != 0 || pipe(from) != 0) {
            fail("pipe");
        }
        struct part part = {i, beyond(to[0]), beyond(from[1]), -1};
        channels[i].to = beyond(to[1]);
        channels[i].from = beyond(from[0]);
        start_part(part);
        close(part.from);
        close(part.to);
        char ready;
        if (read(channels[i].from, &ready, 1) != 1) {
            fail("a process does not start");
        }
    }
}

/* Ends what still runs; nothing outlives this process. */
static void stop_processes(int at_once) {
    for (int i = 0; i < options.processes; i++) {
        if (at_once) {
            kill(shared->pids[i], SIGKILL);
        }
        int status = 0;
        waitpid(shared->pids[i], &status, 0);
        if (!at_once && status != 0) {
            fprintf(output, "process %d ended with %x\n", i, status);
        }
    }
}

/* Has process `index` do operation `number`; 0 if it died or hangs. */
static int ask(int index, int number) {
    struct pollfd answer = {channels[index].from, POLLIN, 0};
    char byte;
    shared->lines[index][0] = 0;
    int asked = write(channels[index].to, &number, sizeof number) == sizeof number;
    int ready = asked ? poll(&answer, 1, PATIENCE_MS) : 1;
    int answered = asked && ready == 1 && read(channels[index].from, &byte, 1) == 1;
    fprintf(output, "%d p%d %s", number, index, shared->lines[index]);
    if (!answered) {
        int status = 0;
        int over = ready != 0 && waitpid(shared->pids[index], &status, 0) > 0;
        fprintf(output, over ? " DIED (status %x)" : " HANGS", status);
    }
    fprintf(output, "\n");
    return answered;
}

static int next_number(FILE *kept, int number) {
    if (kept == NULL) {
        return number + 1 < options.count ? number + 1 : END;
    }
    return fscanf(kept, "%d", &number) == 1 ? number : END;
}

static void sequence(void) {
    FILE *kept = options.keep == NULL ? NULL : fopen(options.keep, "r");
    start_processes();
    int alive = 1;
    int number = next_number(kept, -1);
    for (; alive && number != END; number = next_number(kept, number)) {
        draw_from(options.seed, (uint64_t)number);
        alive = ask((int)draw((uint32_t)options.processes), number);
    }
    for (int i = 0; alive && i < options.processes; i++) {
        alive = ask(i, END);
    }
    stop_processes(!alive);
    if (kept != NULL) {
        fclose(kept);
    }
}

static void copy_report(FILE *report) {
    rewind(report);
    char text[LINE];
    while (fgets(text, sizeof text, report) != NULL) {
        fputs(text, output);
    }
    fclose(report);
}

/* Memory of its own, on a number the operations do not reach. */
static int memory(size_t size) {
    int fd = memfd_create("shared", 0);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) {
        fail("memory");
    }
    return beyond(fd);
}

static void at_once(void) {
    FILE *reports[MOST_PROCESSES];
    for (int i = 0; i < options.processes; i++) {
        int report = memory(0);
        reports[i] = fdopen(report, "r");
        start_part((struct part){i, -1, -1, report});
    }
    stop_processes(0);
    for (int i = 0; i < options.processes; i++) {
        copy_report(reports[i]);
    }
    if (strcmp(options.mode, "race") == 0) {
        report_races(output, options.count, options.root, shared + 1, options.processes);
    }
}

static void share_memory(void) {
    size_t size = sizeof *shared + race_shared_size();
    if (options.part == NULL) {
        shared_memory = memory(size);
    } else if (sscanf(options.part, "%*d,%*d,%*d,%d", &shared_memory) != 1) {
        fail("--part");
    }
    shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, shared_memory, 0);
    if (shared == MAP_FAILED) {
        fail("memory");
    }
}

static void read_options(int count, char **arguments) {
    for (int i = 1; i + 1 < count; i += 2) {
        const char *name = arguments[i], *value = arguments[i + 1];
        if (strcmp(name, "--mode") == 0) {
            options.mode = value;
        } else if (strcmp(name, "--root") == 0) {
            options.root = value;
        } else if (strcmp(name, "--seed") == 0) {
            options.seed = strtoull(value, NULL, 10);
        } else if (strcmp(name, "--count") == 0) {
            options.count = atoi(value);
        } else if (strcmp(name, "--processes") == 0) {
            options.processes = atoi(value);
        } else if (strcmp(name, "--pester") == 0) {
            options.pester = atoi(value);
        } else if (strcmp(name, "--features") == 0) {
            set_features(value);
        } else if (strcmp(name, "--keep") == 0) {
            options.keep = value;
        } else if (strcmp(name, "--output") == 0) {
            options.output = value;
        } else if (strcmp(name, "--launcher") == 0) {
            options.launcher = value;
        } else if (strcmp(name, "--part") == 0) {
            options.part = value;
        } else {
            fail(name);
        }
    }
    if (options.root == NULL || options.processes < 1 || options.processes > MOST_PROCESSES ||
        options.count < 0 || options.count > MOST_COUNT) {
        fail("usage");
    }
}

static void make_root(void) {
    static const char *const names[] = {"",      "/d0",    "/d1",    "/d2",
                                        "/m0",   "/d0/d1", "/d1/d0", "/d0/m1",
                                        "/m0/d0"};
    umask(022);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[2048];
        snprintf(path, sizeof path, "%s%s", options.root, names[i]);
        if (mkdir(path, 0755) != 0) {
            fail(path);
        }
    }
}

int main(int count, char **arguments) {
    if (count > 3 && strcmp(arguments[1], "--inherited") == 0) {
        return inherited(count - 2, arguments + 2);
    }
    read_options(count, arguments);
    program_arguments = arguments;
    world.program = arguments[0];
    signal(SIGPIPE, SIG_IGN);
    share_memory();
    if (options.part != NULL) {
        take_part();
    }
    output = options.output == NULL ? stdout : fopen(options.output, "w");
    if (output == NULL) {
        fail("output");
    }
    snprintf(world.root, sizeof world.root, "%s", options.root);
    if (strcmp(options.mode, "tree") != 0) {
        make_root();
    }
    if (strcmp(options.mode, "sequence") == 0) {
        sequence();
    } else if (strcmp(options.mode, "tree") != 0) {
        at_once();
    }
    print_tree(output, options.root);
    return fclose(output) == 0 ? 0 : 2;
}
