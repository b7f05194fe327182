/* Everything below a directory, one line each, in order. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "differential.h"

static int by_name(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void print_bytes(FILE *out, const char *path) {
    static char bytes[1 << 20];
    int fd = open(path, O_RDONLY);
    uint64_t sum = 0, whole = 0;
    ssize_t count;
    while ((count = read(fd, bytes, sizeof bytes)) > 0) {
        sum = hash(sum, bytes, (size_t)count);
        whole += (uint64_t)count;
    }
    if (fd < 0 || count < 0) {
        fprintf(out, " unreadable: %s", strerrorname_np(errno));
    }
    fprintf(out, " %llu bytes %016llx", (unsigned long long)whole, (unsigned long long)sum);
    close(fd);
}

static void print_attributes(FILE *out, const char *path) {
    static const char *const names[] = {"user.a", "user.b"};
    char value[4000];
    for (size_t i = 0; feature("xattrs") && i < sizeof names / sizeof *names; i++) {
        ssize_t length = lgetxattr(path, names[i], value, sizeof value);
        if (length >= 0) {
            fprintf(out, " %s=%zd:%08x", names[i], length,
                    (unsigned)hash(0, value, (size_t)length));
        }
    }
}

static void print_entry(FILE *out, const char *path, const struct stat *status) {
    fprintf(out, " %o", status->st_mode);
    if (!S_ISDIR(status->st_mode)) {
        fprintf(out, " links=%d", (int)status->st_nlink);
    }
    if (!S_ISDIR(status->st_mode) && !S_ISLNK(status->st_mode)) {
        fprintf(out, " size=%lld", (long long)status->st_size);
    }
    if (status->st_mtim.tv_sec < 1500000000 && !S_ISDIR(status->st_mode)) {
        fprintf(out, " m=%lld.%ld", (long long)status->st_mtim.tv_sec, status->st_mtim.tv_nsec);
    }
    if (S_ISREG(status->st_mode)) {
        print_bytes(out, path);
    }
    if (S_ISLNK(status->st_mode)) {
        char target[8192];
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length < 0 ? 0 : length] = 0;
        size_t root = strlen(world.root);
        int inside = strncmp(target, world.root, root) == 0;
        fprintf(out, " -> %s%s", inside ? "@" : "", target + (inside ? root : 0));
    }
    print_attributes(out, path);
}

static void print_below(FILE *out, const char *root, const char *path) {
    DIR *stream = opendir(path);
    if (stream == NULL) {
        fprintf(out, "%s cannot be listed: %s\n", path + strlen(root), strerrorname_np(errno));
        return;
    }
    char *names[5000];
    int count = 0;
    struct dirent *entry;
    while ((entry = readdir(stream)) != NULL && count < 5000) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            names[count++] = strdup(entry->d_name);
        }
    }
    closedir(stream);
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) {
        char below[8192];
        snprintf(below, sizeof below, "%.7900s/%s", path, names[i]);
        struct stat status;
        /* Sockets are where programs see them, and nowhere else. */
        int found = lstat(below, &status) == 0, code = errno;
        const char *what = found && S_ISSOCK(status.st_mode) ? "socket" : "tree";
        fprintf(out, "%s %.300s", what, below + strlen(root));
        errno = code;
        if (!found) {
            fprintf(out, " no stat: %s\n", strerrorname_np(errno));
        } else {
            print_entry(out, below, &status);
            fprintf(out, "\n");
            if (S_ISDIR(status.st_mode)) {
                print_below(out, root, below);
            }
        }
        free(names[i]);
    }
}

void print_tree(FILE *out, const char *root) {
    print_below(out, root, root);
}
