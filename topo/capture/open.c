/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Opens a machine description in either form: a directory or a tar. */
#include "topo/capture/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topo/reader.h"

enum {
    TAR_IMAGE_MAX = 256 << 20,
};

/* Recognises a file that is no tar by its first bytes; NULL if the format is unknown. XML is
 * recognised before this is called. */
static const char *other_format(const char *image, size_t have)
{
    static const struct {
        const char *bytes, *what;
    } known[] = {
        {"BZh", "compressed by bzip2: unpack it (tar xjf) and give the directory"},
        {"\x1f\x8b", "compressed by gzip: unpack it (tar xzf) and give the directory"},
        {"\xfd"
         "7zXZ",
         "compressed by xz: unpack it (tar xJf) and give the directory"},
        {"\x28\xb5\x2f\xfd",
         "compressed by zstd: unpack it (tar --zstd -xf) and give the directory"},
        {"{", "JSON, which is not read here (as rdma_topo and pvn-topo --json write it): on that "
              "machine run pvn-topo gather"},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (have >= strlen(known[i].bytes) &&
            memcmp(image, known[i].bytes, strlen(known[i].bytes)) == 0)
            return known[i].what;
    return have < 512 ? "neither a tar file nor NCCL's XML" : NULL;
}

static int open_tar_file(const char *root, off_t size, struct pvn_topo_fs **fs,
                         struct pvn_topo_err *err)
{
    char *image = NULL;
    int fd = -1, rc;
    off_t have = 0;

    if (size > TAR_IMAGE_MAX) {
        snprintf(err->text, sizeof(err->text),
                 "%s: %lld bytes are more than the %d MiB a gathered machine may have", root,
                 (long long)size, TAR_IMAGE_MAX >> 20);
        return -EFBIG;
    }
    image = malloc(size > 0 ? (size_t)size : 1);
    if (!image) {
        snprintf(err->text, sizeof(err->text), "%s: out of memory", root);
        return -ENOMEM;
    }
    fd = open(root, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        rc = -errno;
        snprintf(err->text, sizeof(err->text), "%s: %s", root, strerror(errno));
        goto out;
    }
    while (have < size) {
        ssize_t got = read(fd, image + have, (size_t)(size - have));

        if (got < 0) {
            rc = -errno;
            snprintf(err->text, sizeof(err->text), "%s: %s", root, strerror(errno));
            goto out;
        }
        if (got == 0)
            break;
        have += got;
    }
    if (other_format(image, (size_t)have)) {
        snprintf(err->text, sizeof(err->text), "%.250s: %s", root,
                 other_format(image, (size_t)have));
        rc = -EINVAL;
        goto out;
    }
    rc = pvn_topo_fs_open_tar(image, (size_t)have, fs, err);
    if (rc != 0) {
        char reason[sizeof(err->text)];

        memcpy(reason, err->text, sizeof(reason));
        snprintf(err->text, sizeof(err->text), "%.150s: %.300s", root, reason);
    }
out:
    if (fd >= 0)
        close(fd);
    free(image);
    return rc;
}

int pvn_topo_fs_open(const char *root, struct pvn_topo_fs **fs, struct pvn_topo_err *err)
{
    struct stat st;
    int rc;

    if (stat(root, &st) != 0) {
        rc = -errno;
        snprintf(err->text, sizeof(err->text), "%s: %s", root, strerror(errno));
        return rc;
    }
    if (S_ISREG(st.st_mode))
        return open_tar_file(root, st.st_size, fs, err);
    if (!S_ISDIR(st.st_mode)) {
        snprintf(
            err->text, sizeof(err->text),
            "%s: neither a directory nor a tar file; give the directory that holds sys/ and proc/",
            root);
        return -ENOTDIR;
    }
    rc = pvn_topo_fs_open_dir(root, NULL, fs);
    if (rc != 0)
        snprintf(err->text, sizeof(err->text), "%s: %s", root, strerror(-rc));
    return rc;
}

int pvn_topo_load(const char *root, const struct pvn_topo_options *options, struct pvn_topo **topo,
                  struct pvn_topo_err *err)
{
    const char *sysfs = options ? options->sysfs : NULL;
    struct pvn_topo_fs *fs;
    int rc;

    if (sysfs && strcmp(sysfs, "/sys") != 0)
        return pvn_topo_load_dir(root, options, topo, err);
    rc = pvn_topo_fs_open(root, &fs, err);
    if (rc == 0) {
        rc = pvn_topo_load_fs(fs, root, options, topo, err);
        pvn_topo_fs_close(fs);
    }
    return rc;
}

int pvn_topo_load_tar(const void *image, size_t bytes, const struct pvn_topo_options *options,
                      struct pvn_topo **topo, struct pvn_topo_err *err)
{
    struct pvn_topo_fs *fs;
    int rc = pvn_topo_fs_open_tar(image, bytes, &fs, err);

    if (rc == 0) {
        rc = pvn_topo_load_fs(fs, "tar image", options, topo, err);
        pvn_topo_fs_close(fs);
    }
    return rc;
}
