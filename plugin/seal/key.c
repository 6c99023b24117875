/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "seal/key_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define VARIABLE "NCCL_PVRDMA_KEY_FILE"
/* Another key on one host alone would not help. */
#define COPY                                                                                       \
    "copy the job's key file to this host (`pvn-perf --make-key FILE` makes it, once for the job)"

static int refuse(struct pvn_err *err, int code)
{
    pvn_err_set_fault(err, PVN_FAULT_USAGE);
    return code;
}

/* The path may be wrong, so no command has it: `chmod 600 /etc/passwd` would do harm. */
static int check_access(const char *path, const struct stat *st, struct pvn_err *err)
{
    if (st->st_mode & (S_IRWXG | S_IRWXO))
        return refuse(err,
                      pvn_err_set(err, -EPERM,
                                  VARIABLE ": others than its owner may use %s (mode %04o): "
                                           "correct the path, or if that is the job's key "
                                           "`chmod 600` it, and make a new key if it was no secret",
                                  path, (unsigned)(st->st_mode & 07777)));
    if (st->st_uid != geteuid() && st->st_uid != 0)
        return refuse(err,
                      pvn_err_set(err, -EPERM,
                                  VARIABLE ": %s belongs to user %u, who may change it; it has to "
                                           "belong to this user (%u) or to root: `chown`",
                                  path, (unsigned)st->st_uid, (unsigned)geteuid()));
    return 0;
}

/* Reads to the end of the file, or to one byte more than a key may have. */
static ssize_t read_all(int fd, uint8_t *buf, size_t cap)
{
    size_t got = 0;

    while (got < cap) {
        ssize_t n = read(fd, buf + got, cap - got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

/* Compilers leave out a plain memset before free, but not this. */
static void wipe(void *p, size_t len)
{
    explicit_bzero(p, len);
}

static int read_key(int fd, const char *path, struct pvn_key *key, struct pvn_err *err)
{
    uint8_t bytes[PVN_KEY_MAX + 1];
    ssize_t n = read_all(fd, bytes, sizeof(bytes));
    char why[128];
    int rc = 0;

    if (n < 0)
        rc = pvn_err_set(err, (int)n, VARIABLE ": %s cannot be read: %s", path,
                         pvn_strerror((int)n, why, sizeof(why)));
    else if (n < PVN_KEY_MIN)
        rc = pvn_err_set(err, -EINVAL, VARIABLE ": %s has %zd bytes, a key has %d to %d; " COPY,
                         path, n, PVN_KEY_MIN, PVN_KEY_MAX);
    else if (n > PVN_KEY_MAX)
        rc = pvn_err_set(err, -EINVAL,
                         VARIABLE ": %s has more than %d bytes, a key has %d to %d; " COPY, path,
                         PVN_KEY_MAX, PVN_KEY_MIN, PVN_KEY_MAX);
    else
        memcpy(key->bytes, bytes, key->len = (size_t)n);
    wipe(bytes, sizeof(bytes));
    return rc ? refuse(err, rc) : 0;
}

int pvn_key_read(const char *path, struct pvn_key **out, struct pvn_err *err)
{
    /* O_NONBLOCK: open does not wait for the other end of a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK), rc;
    struct pvn_key *key = NULL;
    struct stat st;
    char why[128];

    if (fd < 0) {
        rc = -errno;
        return refuse(err, pvn_err_set(err, rc,
                                       VARIABLE ": %s cannot be opened: %s; every rank needs it%s",
                                       path, pvn_strerror(rc, why, sizeof(why)),
                                       rc == -ENOENT ? ": " COPY : ""));
    }
    if (fstat(fd, &st) != 0)
        rc = pvn_err_set(err, -errno, VARIABLE ": %s cannot be looked at", path);
    else if (!S_ISREG(st.st_mode))
        rc =
            refuse(err, pvn_err_set(err, -EINVAL, VARIABLE ": %s is no regular file; " COPY, path));
    else if ((key = calloc(1, sizeof(*key))) == NULL)
        rc = pvn_err_set(err, -ENOMEM, "no memory for the key of %s", path);
    else
        rc = read_key(fd, path, key, err);
    /* Its size comes before its mode, which matters only if it can be a key. */
    if (rc == 0)
        rc = check_access(path, &st, err);
    close(fd);
    if (rc) {
        pvn_key_free(key);
        return rc;
    }
    *out = key;
    return 0;
}

void pvn_key_free(struct pvn_key *key)
{
    if (!key)
        return;
    wipe(key, sizeof(*key));
    free(key);
}

bool pvn_key_is_equal(const uint8_t *a, const uint8_t *b, size_t len)
{
    volatile uint8_t differ = 0;

    for (size_t i = 0; i < len; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

bool pvn_key_is_same(const struct pvn_key *a, const struct pvn_key *b)
{
    return a->len == b->len && pvn_key_is_equal(a->bytes, b->bytes, a->len);
}

/* ---- a new one ---- */

static int fill_random(uint8_t *p, size_t len)
{
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int write_all(int fd, const char *p, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return fsync(fd) == 0 || errno == EINVAL ? 0 : -errno;
}

int pvn_key_make(const char *path, struct pvn_err *err)
{
    uint8_t random[PVN_KEY_MIN];
    char text[2 * sizeof(random) + 2];
    int fd, rc = fill_random(random, sizeof(random));

    if (rc)
        return pvn_err_set(err, rc, "the system gives no random numbers");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(text + 2 * i, 3, "%02x", random[i]);
    text[2 * sizeof(random)] = '\n';
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (fd < 0) {
        rc = errno == EEXIST
                 ? pvn_err_set(err, -EEXIST,
                               "%s is there already and is not overwritten: a job may use "
                               "it as its key",
                               path)
                 : pvn_err_set(err, -errno, "%s cannot be made", path);
    } else {
        rc = write_all(fd, text, sizeof(text) - 1);
        if (close(fd) != 0 && rc == 0)
            rc = -errno;
        if (rc) {
            pvn_err_set(err, rc, "%s cannot be written", path);
            unlink(path);
        }
    }
    wipe(random, sizeof(random));
    wipe(text, sizeof(text));
    return rc;
}
