/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn_topo_load: the order of the readers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/reader.h"

static int read_all(struct pvn_topo_reader *r)
{
    static int (*const readers[])(struct pvn_topo_reader *) = {
        pvn_topo_read_system, pvn_topo_read_pci,  pvn_topo_read_switch_links, pvn_topo_read_nets,
        pvn_topo_read_rdmas,  pvn_topo_read_gpus, pvn_topo_read_nvidia,       pvn_topo_pair_pvrdma,
    };

    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        int rc = readers[i](r);

        if (rc != 0)
            return rc;
    }
    pvn_topo_recognise_guest(r);
    pvn_topo_note_numas(r);
    return 0;
}

int pvn_topo_load_fs(struct pvn_topo_fs *fs, const char *source,
                     const struct pvn_topo_options *options, struct pvn_topo **topo,
                     struct pvn_topo_err *err)
{
    struct pvn_topo_reader r = {.fs = fs, .flags = options ? options->flags : 0, .err = err};
    int rc;

    if (pvn_topo_fs_type(fs, "/sys") != PVN_TOPO_FS_DIR &&
        pvn_topo_fs_type(fs, "/proc") != PVN_TOPO_FS_DIR) {
        snprintf(
            err->text, sizeof(err->text),
            "%.300s: holds neither sys/ nor proc/, so it describes no machine; give the directory "
            "above them",
            source);
        return -EINVAL;
    }
    r.topo = calloc(1, sizeof(*r.topo));
    if (!r.topo)
        return pvn_topo_reader_nomem(&r);
    r.topo->source = strdup(source);
    r.topo->live = strcmp(source, "/") == 0 &&
                   (!options || !options->sysfs || strcmp(options->sysfs, "/sys") == 0);
    rc = !r.topo->source ? pvn_topo_reader_nomem(&r) : read_all(&r);
    if (rc != 0) {
        pvn_topo_free(r.topo);
        return rc;
    }
    *topo = r.topo;
    return 0;
}

int pvn_topo_load_dir(const char *root, const struct pvn_topo_options *options,
                      struct pvn_topo **topo, struct pvn_topo_err *err)
{
    const char *sysfs = options ? options->sysfs : NULL;
    struct pvn_topo_fs *fs;
    int rc = pvn_topo_fs_open_dir(root, sysfs, &fs);

    if (rc != 0) {
        snprintf(err->text, sizeof(err->text), "%.200s%s%.200s: %s", root,
                 sysfs ? " with this directory for its /sys: " : "", sysfs ? sysfs : "",
                 strerror(-rc));
        return rc;
    }
    rc = pvn_topo_load_fs(fs, root, options, topo, err);
    pvn_topo_fs_close(fs);
    return rc;
}
