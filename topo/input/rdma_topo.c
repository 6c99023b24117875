/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* The output of rdma-core's `rdma_topo dump`: a JSON list of PCI functions with their place in
 * sysfs, modalias, NUMA node, IOMMU group, the names of their devices and a copy of config space.
 * The vital product data (names and serial numbers of boards) are not read, because nothing here
 * shows them. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/input/inflate.h"
#include "topo/input/input.h"
#include "topo/input/synth.h"
#include "topo/reader.h"

static int refuse_entry(const char *name, size_t i, const char *what, struct pvn_topo_err *err)
{
    snprintf(err->text, sizeof(err->text), "%.200s: rdma_topo's dump, entry %zu: %s", name, i,
             what);
    return -EINVAL;
}

enum {
    CONFIG_BYTES = 4096,
    HEADER_BYTES = 64,
    STANDARD_BYTES = 256,
    CAP_POINTER = 0x34,
    CAP_EXPRESS = 0x10,
};

/* True if this is a path of a PCI device in sysfs, because it becomes a path below our root. The
 * root bus may hang on a device of the platform or of a hypervisor. */
static bool good_path(const char *path)
{
    return strncmp(path, "/sys/devices/", 13) == 0 && strstr(path, "/pci") &&
           !strstr(path, "/..") && !strstr(path, "//") && strlen(path) < PVN_TOPO_FS_PATH_MAX / 2;
}

/* "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00" (the kernel's file2alias.c). */
static void take_modalias(struct pvn_topo_synth_fn *f, const char *text)
{
    unsigned v, d, sv, sd, bc, sc, i;
    if (!text ||
        sscanf(text, "pci:v%8Xd%8Xsv%8Xsd%8Xbc%2Xsc%2Xi%2X", &v, &d, &sv, &sd, &bc, &sc, &i) != 7)
        return;
    f->vendor = (int)(v & 0xffff);
    f->device = (int)(d & 0xffff);
    f->subvendor = (int)(sv & 0xffff);
    f->subdevice = (int)(sd & 0xffff);
    f->class_code = (int)((bc & 0xff) << 16 | (sc & 0xff) << 8 | (i & 0xff));
}

static int number(json_t *o, const char *key, int min)
{
    json_t *value = json_object_get(o, key);
    json_int_t n = json_integer_value(value);
    return json_is_integer(value) && n >= min && n < 65536 ? (int)n : PVN_TOPO_UNKNOWN;
}

static void take_devices(struct pvn_topo_synth *s, int fn, json_t *subsystems, const char *kind)
{
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(subsystems, kind), i, name)
    {
        if (json_is_string(name))
            pvn_topo_synth_dev(s, fn, strcmp(kind, "infiniband") == 0, json_string_value(name));
    }
}

static int mts_of(unsigned code)
{
    return code == 1 ? 2500 : code == 2 ? 5000 : code <= 6 && code > 2 ? 8000 << (code - 3) : -1;
}

/* LnkCap and LnkSta of the Express capability, which sysfs shows as files of their own. */
static void take_link(struct pvn_topo_synth_fn *f, const uint8_t *config, size_t len)
{
    size_t at = config[CAP_POINTER] & ~3u;
    for (int steps = 0; steps < 48 && at >= HEADER_BYTES && at + 0x14 <= len; steps++) {
        if (config[at] != CAP_EXPRESS) {
            at = config[at + 1] & ~3u;
            continue;
        }
        int most = mts_of(config[at + 0x0c] & 0xf), now = mts_of(config[at + 0x12] & 0xf);
        if (most > 0) {
            f->speed_max_mts = most;
            f->width_max = (config[at + 0x0d] << 8 | config[at + 0x0c]) >> 4 & 0x3f;
        }
        if (now > 0) {
            f->speed_mts = now;
            f->width = (config[at + 0x13] << 8 | config[at + 0x12]) >> 4 & 0x3f;
        }
        return;
    }
}

/* Writes the copy of config space as a file. Without root the copy has only the header. False if it
 * is damaged. */
static bool take_config(struct pvn_topo_synth *s, int fn, const char *text)
{
    uint8_t packed[2 * CONFIG_BYTES], config[CONFIG_BYTES];
    char path[PVN_TOPO_FS_PATH_MAX];
    ssize_t len = text ? pvn_topo_base64(text, packed, sizeof(packed)) : -1;
    if (len >= 0)
        len = pvn_topo_inflate(packed, (size_t)len, config, sizeof(config));
    if (len < HEADER_BYTES)
        return len == 0;
    struct pvn_topo_synth_fn *f = &s->fns[fn];
    snprintf(path, sizeof(path), "%s/config", f->path);
    pvn_topo_synth_bytes(s, path, config, (size_t)len);
    if ((config[0x0e] & 0x7f) == 1) {
        f->secondary = config[0x19];
        f->subordinate = config[0x1a];
    }
    if (config[0x06] & 0x10)
        take_link(f, config, (size_t)len < STANDARD_BYTES ? (size_t)len : STANDARD_BYTES);
    return true;
}

static int take_entry(struct pvn_topo_synth *s, const char *name, size_t i, json_t *o, int *damaged,
                      struct pvn_topo_err *err)
{
    const char *path = json_string_value(json_object_get(o, "realpath"));
    const char *last = path ? strrchr(path, '/') : NULL;
    uint32_t domain;
    uint8_t bus, dev, fn;
    if (!path || !good_path(path) || pvn_topo_bdf_parse(last + 1, &domain, &bus, &dev, &fn) != 0)
        return refuse_entry(
            name, i,
            "realpath is not the path of a PCI function in /sys/devices (rdma_topo dump writes "
            "that; what its other commands print is not read)",
            err);
    for (int k = 0; k < s->n_fns; k++)
        if (strcmp(s->fns[k].path, path) == 0)
            return refuse_entry(name, i, "the same realpath as an entry before", err);
    int at = pvn_topo_synth_add(s, domain, bus, dev, fn);
    if (at < 0 || !(s->fns[at].path = strdup(path)))
        return refuse_entry(
            name, i, at == -E2BIG ? "more functions than one machine has" : "out of memory", err);
    take_modalias(&s->fns[at], json_string_value(json_object_get(o, "modalias")));
    s->fns[at].numa = number(o, "numa_node", -1);
    s->fns[at].iommu_group = number(o, "iommu_group", 0);
    *damaged += !take_config(s, at, json_string_value(json_object_get(o, "config")));
    take_devices(s, at, json_object_get(o, "subsystems"), "net");
    take_devices(s, at, json_object_get(o, "subsystems"), "infiniband");
    return 0;
}

int pvn_topo_load_rdma_topo(const char *text, size_t len, const char *name, struct pvn_topo **topo,
                            struct pvn_topo_err *err)
{
    struct pvn_topo_synth s = {0};
    json_error_t error;
    json_t *list = json_loadb(text, len, 0, &error), *o;
    size_t i;
    int code = 0, damaged = 0;
    *topo = NULL;
    if (!list) {
        snprintf(err->text, sizeof(err->text), "%.200s:%d: JSON: %s", name, error.line, error.text);
        return -EINVAL;
    }
    if (!json_is_array(list) || json_array_size(list) == 0) {
        json_decref(list);
        snprintf(err->text, sizeof(err->text),
                 "%.200s: JSON, but not what rdma_topo dump writes; of the machine itself give a "
                 "directory, or what pvn-topo gather writes",
                 name);
        return -EINVAL;
    }
    json_array_foreach(list, i, o)
    {
        if ((code = take_entry(&s, name, i, o, &damaged, err)) < 0)
            break;
    }
    json_decref(list);
    if (code == 0)
        code = pvn_topo_synth_load(&s, name, topo, err);
    if (code == 0 && damaged > 0)
        pvn_topo_leave_note(
            &(struct pvn_topo_reader){.topo = *topo}, "rdma_topo's dump",
            "the copies of config space of %d functions are missing or damaged: their "
            "links, ACS and ATS are unknown",
            damaged);
    pvn_topo_synth_free(&s);
    return code;
}
