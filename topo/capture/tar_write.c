/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Writes a tar file: POSIX ustar headers, with GNU 'L' and 'K' entries if a name or a link is too
 * long. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "topo/capture/gather.h"

enum {
    BLOCK = 512,
    NAME_BYTES = 100,
    PREFIX_BYTES = 155,
};

static const char top_dir[] = "pvn-topo-gather";

static int write_all(int fd, const void *data, size_t len)
{
    const char *at = data;

    while (len > 0) {
        ssize_t put = write(fd, at, len);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -errno;
        at += put;
        len -= (size_t)put;
    }
    return 0;
}

static int write_padded(int fd, const void *data, size_t len)
{
    static const char zeros[BLOCK];
    int rc = write_all(fd, data, len);

    return rc != 0 || len % BLOCK == 0 ? rc : write_all(fd, zeros, BLOCK - len % BLOCK);
}

/* The position at which a long name can be cut into the prefix and name fields; 0 if no cut is
 * needed or possible. */
static size_t prefix_of(const char *name, size_t n)
{
    size_t at = n < PREFIX_BYTES ? n : PREFIX_BYTES;

    if (n < NAME_BYTES)
        return 0;
    while (at > 0 && name[at] != '/')
        at--;
    return at > 0 && n - at - 1 < NAME_BYTES && at + 1 < n ? at : 0;
}

static int write_header(int fd, char type, const char *name, const char *link, size_t link_len,
                        size_t size)
{
    char h[BLOCK] = {0};
    unsigned sum = 0;
    size_t n = strlen(name), cut = prefix_of(name, n);

    if (cut > 0) {
        memcpy(h + 345, name, cut);
        name += cut + 1;
        n -= cut + 1;
    }
    memcpy(h, name, n < NAME_BYTES ? n : NAME_BYTES - 1);
    snprintf(h + 100, 8, "%07o", type == '5' ? 0755u : 0644u);
    snprintf(h + 108, 8, "%07o", 0u);
    snprintf(h + 116, 8, "%07o", 0u);
    snprintf(h + 124, 12, "%011zo", size);
    snprintf(h + 136, 12, "%011o", 0u);
    h[156] = type;
    memcpy(h + 157, link, link_len < NAME_BYTES ? link_len : NAME_BYTES - 1);
    memcpy(h + 257, "ustar", 6);
    memcpy(h + 263, "00", 2);
    memset(h + 148, ' ', 8);
    for (int i = 0; i < BLOCK; i++)
        sum += (unsigned char)h[i];
    snprintf(h + 148, 8, "%06o", sum);
    return write_all(fd, h, BLOCK);
}

static int write_long(int fd, char type, const char *text, size_t len)
{
    static const char name[] = "././@LongLink";
    char padded[PVN_TOPO_FS_PATH_MAX + 64] = {0};
    int rc = write_header(fd, type, name, "", 0, len + 1);

    memcpy(padded, text, len);
    return rc != 0 ? rc : write_padded(fd, padded, len + 1);
}

static int write_record(int fd, const struct pvn_topo_record *r)
{
    char name[PVN_TOPO_FS_PATH_MAX + 32];
    const char *link = r->type == PVN_TOPO_FS_LINK ? r->data : "";
    size_t link_len = r->type == PVN_TOPO_FS_LINK ? r->len : 0;
    int n = snprintf(name, sizeof(name), "%s%s%s", top_dir, r->path,
                     r->type == PVN_TOPO_FS_DIR ? "/" : "");
    int rc = 0;

    if (n >= (int)sizeof(name) || link_len > PVN_TOPO_FS_PATH_MAX)
        return -ENAMETOOLONG;
    if (n >= NAME_BYTES && prefix_of(name, (size_t)n) == 0)
        rc = write_long(fd, 'L', name, (size_t)n);
    if (rc == 0 && link_len >= NAME_BYTES)
        rc = write_long(fd, 'K', link, link_len);
    switch (r->type) {
    case PVN_TOPO_FS_DIR:
        return rc != 0 ? rc : write_header(fd, '5', name, "", 0, 0);
    case PVN_TOPO_FS_LINK:
        return rc != 0 ? rc : write_header(fd, '2', name, link, link_len, 0);
    default:
        rc = rc != 0 ? rc : write_header(fd, '0', name, "", 0, r->len);
        return rc != 0 ? rc : write_padded(fd, r->data, r->len);
    }
}

int pvn_topo_tar_write(int fd, struct pvn_topo_record **records, int n)
{
    static const char end[2 * BLOCK];

    for (int i = 0; i < n; i++) {
        int rc = write_record(fd, records[i]);

        if (rc != 0)
            return rc;
    }
    return write_all(fd, end, sizeof(end));
}
