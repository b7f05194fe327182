/* A random sequence of file operations whose results are printed, one line each, so that two runs
 * on two file systems can be compared. What all parts of it share.
 *
 * Each operation draws from a generator of its own, seeded by its number: leaving operations out
 * does not change what the others do. */
#ifndef DIFFERENTIAL_H
#define DIFFERENTIAL_H

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

enum { SLOTS = 4, DIRECTORIES = 2, STREAMS = 2, MOST_PROCESSES = 8, LINE = 4000 };

/* Where a process's own pipes and reports lie, beyond what the operations touch. */
enum { FIRST_OWN = 900 };

/* What one process has open, by slot. */
struct world {
    int index;
    int processes;
    int slot[SLOTS];
    int directory[DIRECTORIES];
    int depth; /* of the working directory below the root */
    FILE *stream[STREAMS];
    char root[1024];
    const char *program;
    const pid_t *pids; /* shared: who is who in answers about locks */
};

struct operation {
    const char *name;
    const char *feature; /* NULL: always */
    int weight;
    void (*run)(void);
};

extern struct world world;

/* The families of operations, each ended by one without a name. */
extern const struct operation data_operations[];
extern const struct operation descriptor_operations[];
extern const struct operation name_operations[];
extern const struct operation attribute_operations[];
extern const struct operation directory_operations[];
extern const struct operation stream_operations[];
extern const struct operation process_operations[];

/* Random numbers of the operation that runs. */
void draw_from(uint64_t seed, uint64_t number);
uint32_t draw(uint32_t below);
int chance(int percent);
#define ONE_OF(list) ((list)[draw(sizeof(list) / sizeof(list)[0])])

/* Whether the run was started with that family of calls. */
int feature(const char *name);
void set_features(const char *list);

/* The line of the operation that runs; `result` adds a return value and the errno of a failure. */
void line_start(char *memory);
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
void result(long long value);
void say_bytes(const void *bytes, size_t count);
void say_status(const struct stat *status);
void say_path(const char *path);
uint64_t hash(uint64_t seed, const void *bytes, size_t count);

/* A random path; it is said too. `directory` prefers names that are mostly directories. */
const char *some_path(int directory);
/* For calls with more than one thing to object to: POSIX leaves open which of them is told, so
 * there are none of the names that are objected to unless the run asks for that order too. */
const char *some_plain_path(int directory);
/* A directory that is mostly never moved or removed, said too. */
const char *some_home(void);
/* Finds out how deep below the root the process is; leaves a directory that was removed. */
void find_depth(void);
/* AT_FDCWD or a directory that is open, said too. */
int some_base(void);
/* Whether a directory of that name may be moved or removed in this run; says so if not. */
int may_go(const char *path);

/* Whether truncating it would only change its time, in a run that does not compare that. */
int truncates_empty(int base, const char *path);

/* Whether a path leads to a FIFO, whose open may wait for another end. */
int waits(int base, const char *path);

int *some_slot(void);
int open_slot(void);
void fill(char *bytes, size_t count);
size_t some_length(void);
off_t some_offset(void);

/* One operation of the enabled ones. In a child only those that leave its parent's state alone. */
void run_one(int in_child);

/* Operations that processes do at once, with one answer whatever the order. */
void race(int me, int rounds, const char *root, void *shared);
size_t race_shared_size(void);
void report_races(FILE *out, int rounds, const char *root, void *shared, int processes);

/* What a program started with inherited descriptors does. */
int inherited(int count, char **arguments);

/* Prints everything below `root`. */
void print_tree(FILE *out, const char *root);

#endif
