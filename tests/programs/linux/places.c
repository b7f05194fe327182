/* Names in odd places: dots, roots, working directories, streams of directories. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "told.h"

static char text[PATH_MAX + 10];

static void put_back(void) {
    unlink(" "), unlink("fresh"), rmdir("fresh");
    if (mkdir("directory", 0755) != 0) {
        MUST(errno == EEXIST);
    }
    rmdir("file"), rmdir("directory/file");
    close(open("file", O_RDWR | O_CREAT, 0644));
    close(open("directory/file", O_RDWR | O_CREAT, 0644));
}

static void dots(void) {
    static const char *names[] = {
        ".", "./", "/", "directory/.", "directory/..", "directory/../directory",
        "file/.", "file/..", "file/", "missing/..", "to-directory/..", "to-directory/.",
        "to-file/..", "directory//file", ".//file", "directory/./file", "", " ",
    };
    struct stat status;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        const char *name = names[i];
        int outside = strcmp(name, "/") == 0;
        put_back();
        printf("%s\n", name);
        TELL(stat(name, &status));
        TELL(lstat(name, &status));
        TELL(access(name, R_OK | W_OK));
        TELL(rmdir(name));
        TELL(unlink(name));
        TELL(mkdir(name, 0755));
        if (strcmp(name, " ") == 0) {
            TELL(rmdir(name));
        }
        TELL(rename(name, "fresh"));
        TELL(rename("fresh", name));
        TELL(link(name, "fresh"));
        TELL(unlink("fresh"));
        TELL(symlink("x", name));
        if (strcmp(name, " ") == 0) {
            TELL(unlink(name));
        }
        TELL(readlink(name, text, 10));
        if (!outside) {
            TELL(truncate(name, 3));
            TELL(chmod(name, 0755));
            TELL(chown(name, -1, -1));
        }
        TELL(open(name, O_WRONLY) < 0);
        TELL(mkfifo(name, 0644) == 0);
        TELL(opendir(name) == NULL);
        TELL(chdir(name) == -1 || chdir(getenv("TERRAL_DIR")) == 0);
        TELL(realpath(name, text) == NULL);
        TELL(mknod(name, S_IFREG | 0644, 0));
        put_back();
    }
}

static void relative(void) {
    int directory = open("directory", O_RDONLY), path = open("directory", O_PATH);
    int file = open("file", O_RDONLY), closed = 555;
    int all[] = {directory, path, file, closed, AT_FDCWD, -1};
    struct stat status;
    for (unsigned i = 0; i < 6; i++) {
        int at = all[i];
        printf("at %u\n", i);
        TELL(close(openat(at, "file", O_RDONLY)));
        TELL(close(openat(at, "inside", O_RDWR | O_CREAT, 0644)));
        TELL(close(openat(at, ".", O_RDONLY)));
        TELL(close(openat(at, "../file", O_RDONLY)));
        TELL(close(openat(at, "", O_RDONLY)));
        TELL(fstatat(at, "inside", &status, 0));
        TELL(mkdirat(at, "made", 0755));
        TELL(renameat(at, "made", AT_FDCWD, "moved"));
        TELL(unlinkat(at, "moved", AT_REMOVEDIR));
        TELL(unlinkat(AT_FDCWD, "moved", AT_REMOVEDIR));
        TELL(symlinkat("x", at, "linked"));
        TELL(readlinkat(at, "linked", text, 10));
        TELL(readlinkat(at, "", text, 10));
        TELL(unlinkat(at, "linked", 0));
        TELL(linkat(at, "inside", AT_FDCWD, "linked", 0));
        TELL(unlinkat(AT_FDCWD, "linked", 0));
        TELL(faccessat(at, "inside", F_OK, 0));
        TELL(fchmodat(at, "inside", 0600, 0));
        TELL(fchownat(at, "inside", -1, -1, 0));
        TELL(mknodat(at, "node", S_IFREG | 0600, 0));
        TELL(unlinkat(at, "node", 0));
        TELL(unlinkat(at, "inside", 0));
        TELL(unlinkat(at, ".", AT_REMOVEDIR));
    }
    close(directory), close(path), close(file);
}

static void streams(void) {
    struct stat status;
    struct dirent *entry;
    char names[20][256];
    long places[20];
    int count = 0;
    MUST(mkdir("many", 0755) == 0);
    for (int i = 0; i < 10; i++) {
        snprintf(text, sizeof text, "many/%d", i);
        close(open(text, O_WRONLY | O_CREAT, 0644));
    }
    MUST(symlink("x", "many/link") == 0 && mkdir("many/below", 0755) == 0);
    DIR *stream = opendir("many");
    MUST(stream);
    for (; count < 20; count++) {
        places[count] = telldir(stream);
        if (!(entry = readdir(stream))) {
            break;
        }
        snprintf(names[count], 256, "%s", entry->d_name);
        MUST(fstatat(dirfd(stream), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0);
        if (strcmp(entry->d_name, "..") != 0 && status.st_ino != entry->d_ino) {
            printf("another inode: %s\n", entry->d_name);
        }
        if (entry->d_type != DT_UNKNOWN && entry->d_type != IFTODT(status.st_mode)) {
            printf("another type: %s\n", entry->d_name);
        }
    }
    printf("%d names\n", count);
    for (int i = count - 1; i >= 0; i--) {
        seekdir(stream, places[i]);
        entry = readdir(stream);
        if (!entry || strcmp(entry->d_name, names[i]) != 0) {
            printf("not found again: %s\n", names[i]);
        }
    }
    rewinddir(stream);
    int again = 0;
    while (readdir(stream)) {
        again++;
    }
    printf("%d again\n", again);
    close(open("many/new", O_WRONLY | O_CREAT, 0644));
    rewinddir(stream);
    for (again = 0; readdir(stream); again++) {
    }
    printf("%d with a new one\n", again);
    /* What is removed while it is listed. */
    rewinddir(stream);
    for (again = 0; (entry = readdir(stream)); again++) {
        if (entry->d_type == DT_REG || entry->d_type == DT_LNK) {
            MUST(unlinkat(dirfd(stream), entry->d_name, 0) == 0);
        }
    }
    printf("%d removed or not\n", again);
    TELL(rmdir("many/below"));
    TELL(rmdir("many"));
    rewinddir(stream);
    TELL(readdir(stream) == NULL);
    TELL(fstat(dirfd(stream), &status));
    printf("%ld links\n", (long)status.st_nlink);
    TELL(openat(dirfd(stream), "x", O_RDWR | O_CREAT, 0644));
    TELL(mkdirat(dirfd(stream), "x", 0755));
    TELL(closedir(stream));
    TELL(opendir("file") == NULL);
    TELL(opendir("") == NULL);
    TELL(fdopendir(-1) == NULL);
    int fd = open("file", O_RDONLY);
    TELL(fdopendir(fd) == NULL);
    close(fd);
}

static void working(void) {
    TELL(getcwd(text, 1) == NULL);
    TELL(getcwd(text, 0) == NULL);
    TELL(syscall(SYS_getcwd, text, 1));
    TELL(chdir("file"));
    TELL(chdir("missing"));
    TELL(chdir("directory"));
    TELL(chdir(".."));
    MUST(mkdir("here", 0755) == 0);
    TELL(chdir("here"));
    TELL(rename("../here", "../there"));
    TELL(getcwd(text, sizeof text) == NULL);
    printf("%s\n", strrchr(text, '/'));
    TELL(rmdir("../there"));
    TELL(getcwd(text, sizeof text) == NULL);
    TELL(open("x", O_RDWR | O_CREAT, 0644));
    TELL(mkdir("x", 0755));
    TELL(opendir(".") == NULL && errno != ENOENT);
    TELL(chdir(getenv("TERRAL_DIR")));
    struct stat status;
    TELL(link("file", "second"));
    TELL(rename("file", "second"));
    TELL(access("file", F_OK));
    TELL(unlink("second"));
    TELL(mkdir("full", 0755));
    TELL(mkdir("full/x", 0755));
    TELL(mkdir("empty", 0755));
    TELL(rename("empty", "full"));
    TELL(rename("full", "empty"));
    TELL(rename("empty", "empty/x/y"));
    TELL(rename("empty/x", "empty"));
    TELL(stat("empty", &status));
    printf("%ld links, %o\n", (long)status.st_nlink, status.st_mode);
    TELL(mkdir("aside", 0755));
    TELL(rename("empty/x", "aside/x"));
    TELL(stat("empty", &status));
    printf("%ld links\n", (long)status.st_nlink);
    TELL(stat("aside", &status));
    printf("%ld links\n", (long)status.st_nlink);
    TELL(linkat(AT_FDCWD, "to-file", AT_FDCWD, "link-to-link", 0));
    TELL(lstat("link-to-link", &status));
    printf("%o %ld\n", status.st_mode, (long)status.st_nlink);
    TELL(linkat(AT_FDCWD, "to-file", AT_FDCWD, "link-to-file", AT_SYMLINK_FOLLOW));
    TELL(lstat("link-to-file", &status));
    printf("%o %ld\n", status.st_mode, (long)status.st_nlink);
    TELL(link("directory", "link-to-directory"));
    TELL(lchown("to-file", -1, -1));
    TELL(symlink("", "empty-link"));
    TELL(readlink("to-file", text, 0));
    TELL(readlink("to-file", text, 2));
    TELL(open("to-nothing", O_RDWR | O_CREAT | O_EXCL, 0644));
    TELL(umask(0777));
    TELL(close(open("no-rights", O_RDWR | O_CREAT, 0666)));
    TELL(stat("no-rights", &status));
    printf("%o\n", status.st_mode);
    TELL(umask(022));
}

int main(void) {
    close(open("file", O_RDWR | O_CREAT, 0644));
    MUST(mkdir("directory", 0755) == 0 && symlink("file", "to-file") == 0);
    MUST(symlink("directory", "to-directory") == 0 && symlink("nothing", "to-nothing") == 0);
    close(open("directory/file", O_RDWR | O_CREAT, 0644));
    printf("dots\n");
    dots();
    printf("relative\n");
    relative();
    printf("streams\n");
    streams();
    printf("working\n");
    working();
    return 0;
}
