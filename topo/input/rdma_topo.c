/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* What `rdma_topo dump` of rdma-core writes: a JSON list of PCI functions with their place in sysfs,
 * modalias, NUMA node, IOMMU group and the names of their devices. Its copies of config space are
 * compressed and not looked at. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/input/input.h"
#include "topo/input/synth.h"
#include "topo/reader.h"

static int fail(const char *name, size_t i, const char *what, struct pvn_topo_err *err)
{
    snprintf(err->text, sizeof(err->text), "%.200s: rdma_topo's dump, entry %zu: %s", name, i,
             what);
    return -EINVAL;
}

/* A place in sysfs and nothing else: it becomes a path below our root. */
static bool good_path(const char *path)
{
    return strncmp(path, "/sys/devices/pci", 16) == 0 && !strstr(path, "/..") &&
           !strstr(path, "//") && strlen(path) < PVN_TOPO_FS_PATH_MAX / 2;
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
            pvn_topo_synth_dev(s, fn, strcmp(kind, "infiniband") == 0, json_string_value(name), "");
    }
}

static int take_entry(struct pvn_topo_synth *s, const char *name, size_t i, json_t *o,
                      struct pvn_topo_err *err)
{
    const char *path = json_string_value(json_object_get(o, "realpath"));
    const char *last = path ? strrchr(path, '/') : NULL;
    uint32_t domain;
    uint8_t bus, dev, fn;
    if (!path || !good_path(path) || pvn_topo_bdf_parse(last + 1, &domain, &bus, &dev, &fn) != 0)
        return fail(name, i, "realpath is not the path of a PCI function in /sys/devices", err);
    for (int k = 0; k < s->n_fns; k++) {
        if (strcmp(s->fns[k].path, path) == 0)
            return fail(name, i, "the same realpath as an entry before", err);
    }
    int at = pvn_topo_synth_add(s, domain, bus, dev, fn);
    if (at < 0 || !(s->fns[at].path = strdup(path)))
        return fail(name, i, at == -E2BIG ? "more functions than one machine has" : "out of memory",
                    err);
    take_modalias(&s->fns[at], json_string_value(json_object_get(o, "modalias")));
    s->fns[at].numa = number(o, "numa_node", -1);
    s->fns[at].iommu_group = number(o, "iommu_group", 0);
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
    int code = 0;
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
        if ((code = take_entry(&s, name, i, o, err)) < 0)
            break;
    }
    json_decref(list);
    if (code == 0)
        return pvn_topo_synth_load(&s, name, topo, err);
    pvn_topo_synth_free(&s);
    return code;
}
