/* Descriptors that only stand for a name: O_PATH, of files, directories and links themselves. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/stat.h>

#include "check.h"

static void links(void) {
    char text[32] = "";
    struct stat open_stat, name_stat;
    CHECK(symlink("file", "link") == 0 && symlink("no/where", "dangling") == 0);
    CHECK(mkdir("directory", 0755) == 0 && symlink("directory", "way") == 0);
    FAILS(open("link", O_RDONLY | O_NOFOLLOW), ELOOP);
    FAILS(open("link", O_PATH | O_NOFOLLOW | O_DIRECTORY), ENOTDIR);
    int link = open("link", O_PATH | O_NOFOLLOW);
    CHECK(link >= 0 && fstat(link, &open_stat) == 0 && S_ISLNK(open_stat.st_mode));
    CHECK(lstat("link", &name_stat) == 0 && open_stat.st_ino == name_stat.st_ino);
    CHECK(open_stat.st_size == 4 && readlinkat(link, "", text, sizeof text) == 4);
    CHECK(memcmp(text, "file", 4) == 0);
    CHECK(fstatat(link, "", &open_stat, AT_EMPTY_PATH) == 0 && S_ISLNK(open_stat.st_mode));
    CHECK(fcntl(link, F_GETFL) & O_PATH);
    FAILS(read(link, text, 1), EBADF);
    FAILS(fchdir(link), ENOTDIR);
    FAILS(openat(link, "file", O_RDONLY), ENOTDIR);
    FAILS(ftruncate(link, 0), EBADF);
    int copy = dup(link);
    CHECK(close(link) == 0 && readlinkat(copy, "", text, 2) == 2);
    CHECK(rename("link", "moved") == 0 && readlinkat(copy, "", text, 4) == 4 && close(copy) == 0);
    link = open("dangling", O_PATH | O_NOFOLLOW);
    CHECK(link >= 0 && readlinkat(link, "", text, sizeof text) == 8 && close(link) == 0);
    FAILS(open("dangling", O_PATH), ENOENT);
    /* The flag is about the last component, and about links only. */
    link = open("way/", O_PATH | O_NOFOLLOW);
    CHECK(link >= 0 && fstat(link, &open_stat) == 0 && S_ISDIR(open_stat.st_mode));
    CHECK(fchdir(link) == 0 && chdir("..") == 0 && close(link) == 0);
    link = open("file", O_PATH | O_NOFOLLOW);
    CHECK(fstat(link, &open_stat) == 0 && S_ISREG(open_stat.st_mode));
    FAILS(readlinkat(link, "", text, sizeof text), ENOENT);
    CHECK(close(link) == 0 && unlink("moved") == 0 && unlink("dangling") == 0);
    CHECK(unlink("way") == 0 && rmdir("directory") == 0);
}

static void waits(void) {
    int pipes[2], set = epoll_create1(0);
    int path = open("file", O_PATH), file = open("file", O_RDONLY);
    CHECK(pipe(pipes) == 0 && path >= 0 && file >= 0 && set >= 0);
    struct pollfd polled[] = {{pipes[0], POLLIN, 0}, {path, 0, 0}, {file, POLLIN, 0}};
    CHECK(poll(polled, 3, -1) == 2);
    CHECK(polled[0].revents == 0 && polled[1].revents == POLLNVAL && polled[2].revents == POLLIN);
    CHECK(ppoll(polled, 2, NULL, NULL) == 1 && polled[1].revents == POLLNVAL);
    polled[1].fd = -1;
    CHECK(poll(polled, 2, 1) == 0 && polled[1].revents == 0);
    fd_set reads;
    FD_ZERO(&reads);
    FD_SET(path, &reads);
    FD_SET(file, &reads);
    CHECK(select(file + 1, &reads, NULL, NULL, NULL) == 2 && FD_ISSET(path, &reads));
    struct epoll_event event = {.events = EPOLLIN};
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, path, &event), EBADF);
    FAILS(epoll_ctl(set, EPOLL_CTL_ADD, file, &event), EPERM);
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event) == 0);
    CHECK(close(path) == 0 && close(file) == 0 && close(set) == 0);
    CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    int fd = open("file", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "text", 4) == 4 && close(fd) == 0);
    links();
    waits();
    return 0;
}
