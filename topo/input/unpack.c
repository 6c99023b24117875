/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Unpacks compressed inputs by the programs that every system has for them. This avoids four
 * libraries, and a decoder that damaged data breaks is in another process. */
#define _GNU_SOURCE 1
#include "topo/input/input.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct format {
    const char *magic;
    size_t bytes;
    const char *program, *package;
};

static const struct format formats[] = {
    {"\x1f\x8b", 2, "gzip", "gzip"},
    {"BZh", 3, "bzip2", "bzip2"},
    {"\xfd\x37zXZ", 5, "xz", "xz-utils (or xz)"},
    {"\x28\xb5\x2f\xfd", 4, "zstd", "zstd"},
};

static const struct format *format_of(const struct pvn_topo_input *in)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (in->len >= formats[i].bytes &&
            memcmp(in->data, formats[i].magic, formats[i].bytes) == 0)
            return &formats[i];
    return NULL;
}

/* Makes a file in memory that holds data, positioned at its start. The program reads it while this
 * process reads the program's output, so neither waits for the other. */
static int memory_file(const char *data, size_t len)
{
    int fd = memfd_create("pvn-topo", MFD_CLOEXEC);
    size_t at = 0;
    while (fd >= 0 && at < len) {
        ssize_t put = write(fd, data + at, len - at);
        if (put < 0 && errno != EINTR) {
            close(fd);
            return -1;
        }
        at += put > 0 ? (size_t)put : 0;
    }
    if (fd >= 0)
        lseek(fd, 0, SEEK_SET);
    return fd;
}

static int start(const struct format *f, int in, int out, int messages, pid_t *child)
{
    char *argv[] = {(char *)f->program, (char *)"-dc", NULL};
    posix_spawn_file_actions_t actions;
    int code = posix_spawn_file_actions_init(&actions);
    if (code != 0)
        return code;
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, messages, STDERR_FILENO);
    code = posix_spawnp(child, f->program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* Reads the pipe to its end. */
static int collect(int fd, struct pvn_topo_input *out)
{
    size_t room = 0;
    for (;;) {
        if (out->len + 1 >= room) {
            room = room ? 2 * room : 1 << 16;
            char *more = realloc(out->data, room);
            if (!more)
                return -ENOMEM;
            out->data = more;
        }
        ssize_t got = read(fd, out->data + out->len, room - out->len - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        out->len += (size_t)got;
        if (out->len > PVN_TOPO_INPUT_MAX)
            return -EFBIG;
    }
    out->data[out->len] = '\0';
    return 0;
}

/* First line of the program's messages, "" if there are none. */
static void first_line(int messages, char *text, size_t size)
{
    ssize_t got = pread(messages, text, size - 1, 0);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

static int finish(const char *path, const struct format *f, pid_t child, int code, int messages,
                  struct pvn_topo_err *err)
{
    char said[160];
    int status;
    if (code < 0)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (code == -EFBIG)
        snprintf(err->text, sizeof(err->text),
                 "%.200s: unpacked it is more than the %d MiB that a description of a machine may "
                 "have",
                 path, PVN_TOPO_INPUT_MAX >> 20);
    else if (code < 0)
        snprintf(err->text, sizeof(err->text), "%.200s: cannot be unpacked: %s", path,
                 strerror(-code));
    if (code < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return code;
    first_line(messages, said, sizeof(said));
    snprintf(err->text, sizeof(err->text),
             "%.150s: cut or damaged: %s cannot unpack it%s%s; copy it again", path, f->program,
             said[0] ? ": " : "", said);
    return -EINVAL;
}

int pvn_topo_input_unpack(const char *path, struct pvn_topo_input *in, struct pvn_topo_err *err)
{
    const struct format *f = format_of(in);
    struct pvn_topo_input out = {.kind = in->kind};
    int pipe_fd[2] = {-1, -1}, code = -ENOMEM, packed = -1, messages = -1;
    pid_t child;
    if (!f)
        return 0;
    packed = memory_file(in->data, in->len);
    messages = memory_file("", 0);
    if (packed < 0 || messages < 0 || pipe2(pipe_fd, O_CLOEXEC) < 0) {
        snprintf(err->text, sizeof(err->text), "%.200s: cannot be unpacked: %s", path,
                 strerror(errno));
        goto out;
    }
    code = -start(f, packed, pipe_fd[1], messages, &child);
    close(pipe_fd[1]);
    pipe_fd[1] = -1;
    if (code < 0) {
        snprintf(err->text, sizeof(err->text),
                 "%.200s: compressed by %s, and the program %s cannot be started (%s): install %s, "
                 "or unpack the file elsewhere",
                 path, f->program, f->program, strerror(-code), f->package);
        goto out;
    }
    code = finish(path, f, child, collect(pipe_fd[0], &out), messages, err);
out:
    if (packed >= 0)
        close(packed);
    if (messages >= 0)
        close(messages);
    for (int i = 0; i < 2; i++)
        if (pipe_fd[i] >= 0)
            close(pipe_fd[i]);
    if (code < 0) {
        free(out.data);
        return code;
    }
    free(in->data);
    *in = out;
    return 0;
}
