/* Sockets with names: bound, connected to, moved, removed, and their addresses as they are told. */
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../linux/told.h"

static socklen_t address_of(struct sockaddr_un *address, const char *path) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    size_t length = strlen(path);
    MUST(length <= sizeof address->sun_path);
    memcpy(address->sun_path, path, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length +
                       (length < sizeof address->sun_path));
}

static int bind_to(int fd, const char *path) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address, path);
    return bind(fd, (struct sockaddr *)&address, length);
}

static int connect_to(int fd, const char *path) {
    struct sockaddr_un address;
    socklen_t length = address_of(&address, path);
    return connect(fd, (struct sockaddr *)&address, length);
}

/* The directory is called otherwise on the two sides. */
static void say_address(const char *what, const struct sockaddr_un *address, socklen_t length) {
    static char here[4096];
    if (!here[0]) {
        MUST(getcwd(here, sizeof here) != NULL);
    }
    char path[sizeof address->sun_path + 2] = "";
    size_t named = length > 2 ? length - 2 : 0, room = sizeof address->sun_path;
    memcpy(path, address->sun_path, named < room ? named : room);
    int below = strncmp(path, here, strlen(here)) == 0;
    int more = below ? (int)strlen(here) : 0;
    printf("%s: family %d length %d %s%s\n", what, length >= 2 ? address->sun_family : -1,
           (int)length - more, below ? "HERE" : "", path + more);
    fflush(stdout);
}

static void say_names(int fd) {
    struct sockaddr_un address;
    socklen_t length = sizeof address;
    MUST(getsockname(fd, (struct sockaddr *)&address, &length) == 0);
    say_address("  own", &address, length);
    length = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0) {
        say_address("  peer", &address, length);
    } else {
        printf("  peer: %s\n", strerrorname_np(errno));
    }
}

static void show(const char *name) {
    struct stat status;
    if (lstat(name, &status) == 0) {
        printf("%s: mode %o size %ld links %lu\n", name, status.st_mode, (long)status.st_size,
               (unsigned long)status.st_nlink);
    } else {
        printf("%s: %s\n", name, strerrorname_np(errno));
    }
}

static int made(int type) {
    int fd = socket(AF_UNIX, type, 0);
    MUST(fd >= 0);
    return fd;
}

static void streams(void) {
    umask(027);
    int server = made(SOCK_STREAM), client = made(SOCK_STREAM), late = made(SOCK_STREAM);
    TELL(connect_to(client, "s"));
    TELL(bind_to(server, "s"));
    show("s");
    say_names(server);
    TELL(bind_to(server, "other"));
    show("other");
    TELL(bind_to(late, "s"));
    TELL(connect_to(client, "s"));
    TELL(listen(server, 5));
    TELL(bind_to(client, "c"));
    TELL(connect_to(client, "s"));
    say_names(client);
    struct sockaddr_un address;
    socklen_t length = sizeof address;
    int accepted = accept(server, (struct sockaddr *)&address, &length);
    MUST(accepted >= 0);
    say_address("accepted", &address, length);
    say_names(accepted);
    char text[16] = "";
    TELL(write(client, "hello", 5));
    TELL(read(accepted, text, sizeof text));
    printf("%s\n", text);
    /* Room for less than all of it: only the length is told in full. */
    length = 2;
    TELL(getpeername(accepted, (struct sockaddr *)&address, &length));
    printf("length %d\n", (int)length > 2);
    length = (socklen_t)-1;
    TELL(getsockname(accepted, (struct sockaddr *)&address, &length));
    TELL(rename("s", "renamed"));
    say_names(server);
    TELL(connect_to(late, "s"));
    TELL(connect_to(late, "renamed"));
    say_names(late);
    TELL(link("renamed", "linked"));
    int third = made(SOCK_STREAM);
    TELL(connect_to(third, "linked"));
    TELL(unlink("renamed"));
    TELL(unlink("linked"));
    TELL(write(third, "there", 5));
    int fourth = made(SOCK_STREAM);
    TELL(connect_to(fourth, "linked"));
    TELL(open("c", O_RDWR));
    TELL(open("c", O_RDONLY | O_PATH) >= 0);
    TELL(truncate("c", 0));
    TELL(mkdir("c", 0700));
    /* The dead leave their names. */
    TELL(close(server) + close(client) + close(late) + close(third) + close(accepted));
    TELL(connect_to(fourth, "c"));
    TELL(bind_to(fourth, "c"));
    TELL(unlink("c"));
    TELL(bind_to(fourth, "c"));
    TELL(unlink("c"));
    TELL(close(fourth));
    umask(0);
}

static void strange_addresses(void) {
    int fd = made(SOCK_STREAM);
    MUST(mkdir("d", 0755) == 0 && creat("file", 0644) >= 0 && mkfifo("fifo", 0644) == 0);
    TELL(bind_to(fd, "missing/s"));
    TELL(bind_to(fd, "file/s"));
    TELL(bind_to(fd, "file"));
    TELL(bind_to(fd, "d"));
    TELL(bind_to(fd, "d/"));
    TELL(bind_to(fd, "new/"));
    TELL(bind_to(fd, "."));
    TELL(connect_to(fd, "file"));
    TELL(connect_to(fd, "fifo"));
    TELL(connect_to(fd, "d"));
    TELL(connect_to(fd, "missing/s"));
    TELL(connect_to(fd, "file/s"));
    TELL(symlink("target", "dangling"));
    TELL(bind_to(fd, "dangling"));
    TELL(mknod("unbound", S_IFSOCK | 0666, 0));
    TELL(connect_to(fd, "unbound"));
    TELL(bind_to(fd, "unbound"));
    TELL(unlink("unbound"));
    /* Sockets of other families, and things that are none. */
    int inet = socket(AF_INET, SOCK_STREAM, 0), file = open("file", O_RDWR);
    TELL(bind_to(inet, "elsewhere") == -1);
    show("elsewhere");
    TELL(bind_to(file, "elsewhere"));
    TELL(bind_to(-1, "elsewhere"));
    show("elsewhere");
    struct sockaddr_un address;
    address_of(&address, "no-zero-x");
    TELL(bind(fd, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 7));
    show("no-zero");
    say_names(fd);
    TELL(close(fd) + close(inet) + close(file));
    /* One that is absolute, and one as long as they can be. */
    char path[200];
    MUST(getcwd(path, 90) != NULL);
    strcat(path, "/d/absolute");
    int server = made(SOCK_STREAM), client = made(SOCK_STREAM);
    TELL(bind_to(server, path));
    say_names(server);
    TELL(listen(server, 1));
    TELL(connect_to(client, path));
    say_names(client);
    TELL(close(server) + close(client));
    for (size_t length = 106; length <= 108; length++) {
        memset(path, 0, sizeof path);
        memset(path, 'l', length);
        int longest = made(SOCK_DGRAM);
        TELL(bind_to(longest, path));
        say_names(longest);
        int sender = made(SOCK_DGRAM);
        TELL(connect_to(sender, path));
        say_names(sender);
        TELL(close(longest) + close(sender) + unlink(path));
    }
    /* Through links. */
    int linked = made(SOCK_STREAM), caller = made(SOCK_STREAM);
    TELL(bind_to(linked, "d/s"));
    TELL(listen(linked, 5));
    TELL(symlink("d/s", "to-s"));
    TELL(symlink("d", "to-d"));
    TELL(connect_to(caller, "to-s"));
    TELL(close(caller));
    caller = made(SOCK_STREAM);
    TELL(connect_to(caller, "to-d/s"));
    TELL(bind_to(caller, "to-d/c"));
    char by_descriptor[64];
    int looked = open("d/s", O_PATH), second = made(SOCK_STREAM);
    snprintf(by_descriptor, sizeof by_descriptor, "/proc/self/fd/%d", looked);
    TELL(connect_to(second, by_descriptor));
    TELL(close(looked) + close(second));
    show("d/c");
    say_names(caller);
    TELL(close(caller) + close(linked));
    /* None of these has a name in a directory. */
    int abstract = made(SOCK_STREAM), unnamed = made(SOCK_STREAM);
    socklen_t length = address_of(&address, "xterral-test-abstract");
    address.sun_path[0] = 0;
    char pid[16];
    snprintf(pid, sizeof pid, "%d", getpid());
    memcpy(address.sun_path + length - 2, pid, strlen(pid));
    length += (socklen_t)strlen(pid);
    TELL(bind(abstract, (struct sockaddr *)&address, length));
    TELL(listen(abstract, 1));
    TELL(connect(unnamed, (struct sockaddr *)&address, length));
    struct sockaddr_un found;
    socklen_t room = sizeof found;
    TELL(getpeername(unnamed, (struct sockaddr *)&found, &room));
    TELL(room == length && memcmp(&found, &address, length) == 0);
    TELL(close(abstract) + close(unnamed));
    int pair[2];
    TELL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    say_names(pair[0]);
    int other_type = made(SOCK_DGRAM), stream = made(SOCK_STREAM);
    TELL(bind_to(other_type, "dgram"));
    TELL(connect_to(stream, "dgram"));
    TELL(close(other_type) + close(stream));
}

static void datagrams(void) {
    int server = made(SOCK_DGRAM), client = made(SOCK_DGRAM);
    TELL(bind_to(server, "to"));
    TELL(bind_to(client, "from"));
    struct sockaddr_un to, from;
    socklen_t length = address_of(&to, "to"), back = sizeof from;
    char text[64] = "";
    TELL(sendto(client, "one", 3, 0, (struct sockaddr *)&to, length));
    TELL(recvfrom(server, text, sizeof text, 0, (struct sockaddr *)&from, &back));
    say_address(text, &from, back);
    /* And back to where it came from. */
    TELL(sendto(server, "reply", 5, 0, (struct sockaddr *)&from, back));
    TELL(recv(client, text, sizeof text, 0));
    struct iovec piece = {.iov_base = "two", .iov_len = 3};
    struct msghdr message = {
        .msg_name = &to, .msg_namelen = length, .msg_iov = &piece, .msg_iovlen = 1};
    TELL(sendmsg(client, &message, 0));
    struct iovec into = {.iov_base = text, .iov_len = sizeof text};
    struct msghdr got = {
        .msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &into, .msg_iovlen = 1};
    TELL(recvmsg(server, &got, 0));
    say_address("recvmsg", &from, got.msg_namelen);
    struct mmsghdr many[3] = {{.msg_hdr = message}, {.msg_hdr = message}, {.msg_hdr = message}};
    struct sockaddr_un nowhere;
    many[2].msg_hdr.msg_namelen = address_of(&nowhere, "nowhere");
    many[2].msg_hdr.msg_name = &nowhere;
    TELL(sendmmsg(client, many, 3, 0));
    TELL(many[0].msg_len);
    TELL(sendmmsg(client, many + 2, 1, 0));
    struct sockaddr_un origins[3];
    char texts[3][8];
    struct iovec pieces[3];
    struct mmsghdr into_many[3] = {0};
    for (int i = 0; i < 3; i++) {
        pieces[i] = (struct iovec){.iov_base = texts[i], .iov_len = sizeof texts[i]};
        into_many[i].msg_hdr = (struct msghdr){.msg_name = &origins[i],
                                               .msg_namelen = sizeof origins[i],
                                               .msg_iov = &pieces[i],
                                               .msg_iovlen = 1};
    }
    TELL(recvmmsg(server, into_many, 3, MSG_DONTWAIT, NULL));
    for (int i = 0; i < 2; i++) {
        say_address("recvmmsg", &origins[i], into_many[i].msg_hdr.msg_namelen);
    }
    TELL(connect_to(client, "to"));
    TELL(send(client, "three", 5, 0));
    TELL(recvfrom(server, text, sizeof text, 0, NULL, NULL));
    TELL(unlink("to"));
    TELL(send(client, "four", 4, 0));
    TELL(sendto(client, "five", 4, 0, (struct sockaddr *)&to, length));
    TELL(close(server) + close(client));
    TELL(unlink("from"));
}

/* A descriptor of a file here, over a socket here. */
static void passed_on(void) {
    int server = made(SOCK_SEQPACKET);
    TELL(bind_to(server, "packets"));
    TELL(listen(server, 1));
    pid_t child = fork();
    if (child == 0) {
        int client = made(SOCK_SEQPACKET), fd = open("file", O_RDWR | O_TRUNC);
        MUST(connect_to(client, "packets") == 0 && write(fd, "passed on", 9) == 9);
        char control[CMSG_SPACE(sizeof fd)] = "";
        struct iovec piece = {.iov_base = "f", .iov_len = 1};
        struct msghdr message = {.msg_iov = &piece,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
        MUST(sendmsg(client, &message, 0) == 1);
        _exit(0);
    }
    int accepted = accept4(server, NULL, NULL, SOCK_CLOEXEC), fd = -1;
    char byte, control[CMSG_SPACE(sizeof fd)] = "", text[16] = "";
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    TELL(recvmsg(accepted, &message, 0));
    MUST(CMSG_FIRSTHDR(&message) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    TELL(pread(fd, text, sizeof text, 0));
    printf("%s\n", text);
    int status;
    TELL(waitpid(child, &status, 0) == child && status == 0);
    TELL(close(fd) + close(accepted) + close(server) + unlink("packets"));
}

/* Who waits in a connect, as the other end has no room, holds up nobody. */
static void waiting(void) {
    int server = made(SOCK_STREAM);
    TELL(bind_to(server, "full"));
    TELL(listen(server, 0));
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; i++) {
            MUST(connect_to(made(SOCK_STREAM), "full") == 0);
        }
        _exit(0);
    }
    for (int i = 0; i < 50; i++) {
        int fd = open("busy", O_RDWR | O_CREAT, 0600);
        MUST(fd >= 0 && write(fd, "words", 5) == 5 && close(fd) == 0 && unlink("busy") == 0);
        usleep(1000);
    }
    for (int i = 0; i < 3; i++) {
        MUST(accept(server, NULL, NULL) >= 0);
    }
    int status;
    TELL(waitpid(child, &status, 0) == child && status == 0);
    TELL(close(server) + unlink("full"));
}

static void others(void) {
    int server = made(SOCK_STREAM);
    TELL(bind_to(server, "guarded"));
    TELL(listen(server, 5));
    TELL(chmod(".", 0777));
    for (mode_t mode = 0; mode <= 7; mode++) {
        MUST(chmod("guarded", 0700 | mode) == 0);
        MUST(setgroups(0, NULL) == 0 && setegid(65533) == 0 && seteuid(65533) == 0);
        int client = made(SOCK_STREAM);
        TELL(connect_to(client, "guarded"));
        int own = made(SOCK_STREAM);
        TELL(bind_to(own, "of-somebody"));
        show("of-somebody");
        TELL(listen(own, 1));
        MUST(seteuid(0) == 0 && setegid(0) == 0);
        int root = made(SOCK_STREAM);
        TELL(connect_to(root, "of-somebody"));
        TELL(close(client) + close(own) + close(root) + unlink("of-somebody"));
    }
    TELL(close(server) + unlink("guarded"));
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    streams();
    strange_addresses();
    datagrams();
    passed_on();
    waiting();
    if (getuid() == 0) {
        others();
    }
    return 0;
}
