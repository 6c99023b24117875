/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1
#include "topo/input/synth.h"

#include <errno.h>
#include <net/if_arp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "topo/reader.h"

enum {
    MAX_ATTRS = 65536,
};

int pvn_topo_synth_add(struct pvn_topo_synth *s, uint32_t domain, int bus, int dev, int fn)
{
    if (s->n_fns >= PVN_TOPO_MAX_PCI)
        return s->err = -E2BIG;
    struct pvn_topo_synth_fn *f = pvn_topo_array_add((void **)&s->fns, &s->n_fns, sizeof(*s->fns));
    if (!f)
        return s->err = -ENOMEM;
    *f = (struct pvn_topo_synth_fn){.domain = domain,
                                    .bus = (uint8_t)bus,
                                    .dev = (uint8_t)dev,
                                    .fn = (uint8_t)fn,
                                    .up = -1,
                                    .class_code = PVN_TOPO_UNKNOWN,
                                    .revision = PVN_TOPO_UNKNOWN,
                                    .vendor = PVN_TOPO_UNKNOWN,
                                    .device = PVN_TOPO_UNKNOWN,
                                    .subvendor = PVN_TOPO_UNKNOWN,
                                    .subdevice = PVN_TOPO_UNKNOWN,
                                    .numa = PVN_TOPO_UNKNOWN,
                                    .secondary = PVN_TOPO_UNKNOWN,
                                    .subordinate = PVN_TOPO_UNKNOWN,
                                    .speed_mts = PVN_TOPO_UNKNOWN,
                                    .width = PVN_TOPO_UNKNOWN,
                                    .speed_max_mts = PVN_TOPO_UNKNOWN,
                                    .width_max = PVN_TOPO_UNKNOWN,
                                    .iommu_group = PVN_TOPO_UNKNOWN};
    return s->n_fns - 1;
}

static void add_bytes(struct pvn_topo_synth *s, enum pvn_topo_fs_type type, const char *path,
                      const void *data, size_t len)
{
    struct pvn_topo_record *r = calloc(1, sizeof(*r));
    if (!r || !(r->path = strdup(path)) || !(r->data = malloc(len + 1)))
        goto no_memory;
    r->type = type;
    r->len = len;
    memcpy(r->data, data, len);
    r->data[len] = '\0';
    struct pvn_topo_record **at =
        pvn_topo_array_add((void **)&s->records, &s->n_records, sizeof(*s->records));
    if (at) {
        *at = r;
        return;
    }
no_memory:
    if (r) {
        free(r->path);
        free(r->data);
    }
    free(r);
    s->err = -ENOMEM;
}

static void add_record(struct pvn_topo_synth *s, enum pvn_topo_fs_type type, const char *path,
                       const char *text)
{
    add_bytes(s, type, path, text, strlen(text));
}

void pvn_topo_synth_bytes(struct pvn_topo_synth *s, const char *path, const void *data, size_t len)
{
    add_bytes(s, PVN_TOPO_FS_FILE, path, data, len);
}

void pvn_topo_synth_file(struct pvn_topo_synth *s, const char *path, const char *format, ...)
{
    char text[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    add_record(s, PVN_TOPO_FS_FILE, path, text);
}

int pvn_topo_synth_dev(struct pvn_topo_synth *s, int fn, bool rdma, const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n >= PVN_TOPO_NAME_MAX || strchr(name, '/') || name[0] == '.')
        return -1;
    for (int i = 0; i < s->n_devs; i++)
        if (s->devs[i].rdma == rdma && strcmp(s->devs[i].name, name) == 0)
            return -1;
    if (s->n_devs >= PVN_TOPO_MAX_RDMAS) {
        s->err = -E2BIG;
        return -1;
    }
    if (!pvn_topo_array_add((void **)&s->devs, &s->n_devs, sizeof(*s->devs))) {
        s->err = -ENOMEM;
        return -1;
    }
    s->devs[s->n_devs - 1].fn = fn;
    s->devs[s->n_devs - 1].rdma = rdma;
    snprintf(s->devs[s->n_devs - 1].name, sizeof(s->devs[0].name), "%s", name);
    return s->n_devs - 1;
}

void pvn_topo_synth_attr(struct pvn_topo_synth *s, int dev, const char *name, const char *text)
{
    if (dev < 0)
        return;
    if (s->n_attrs >= MAX_ATTRS) {
        s->err = -E2BIG;
        return;
    }
    struct pvn_topo_synth_attr *a =
        pvn_topo_array_add((void **)&s->attrs, &s->n_attrs, sizeof(*s->attrs));
    if (!a) {
        s->err = -ENOMEM;
        return;
    }
    a->dev = dev;
    snprintf(a->name, sizeof(a->name), "%s", name);
    snprintf(a->text, sizeof(a->text), "%s\n", text);
    s->devs[dev].ports |= strncmp(name, "ports/", 6) == 0;
}

static int by_address(const struct pvn_topo_synth_fn *a, const struct pvn_topo_synth_fn *b)
{
    if (a->domain != b->domain)
        return a->domain < b->domain ? -1 : 1;
    int x = a->bus << 8 | a->dev << 3 | a->fn, y = b->bus << 8 | b->dev << 3 | b->fn;
    return x - y;
}

void pvn_topo_synth_name_nics(struct pvn_topo_synth *s)
{
    int last = -1, number = 0;
    char name[16];
    for (;;) {
        int next = -1;
        for (int i = 0; i < s->n_fns; i++) {
            const struct pvn_topo_synth_fn *f = &s->fns[i];
            if (f->class_code == PVN_TOPO_UNKNOWN || f->class_code >> 16 != 0x02 ||
                (last >= 0 && by_address(f, &s->fns[last]) <= 0))
                continue;
            if (next < 0 || by_address(f, &s->fns[next]) < 0)
                next = i;
        }
        if (next < 0 || s->err)
            return;
        snprintf(name, sizeof(name), "nic%d", number++);
        int class = s->fns[next].class_code >> 8;
        pvn_topo_synth_dev(s, next, class == 0x0207 || class == 0x0208, name);
        last = next;
    }
}

/* Finds the bridge whose secondary bus this is. Bus numbers rise from the root downwards, so there
 * is no loop. */
static void find_up(struct pvn_topo_synth *s, int i)
{
    struct pvn_topo_synth_fn *f = &s->fns[i];
    for (int b = 0; f->up < 0 && b < s->n_fns; b++)
        if (s->fns[b].domain == f->domain && s->fns[b].secondary == f->bus &&
            s->fns[b].bus < f->bus)
            f->up = b;
}

/* Appends one component. False if the path gets too long for any file system. */
static bool append(char *path, size_t size, const char *component)
{
    size_t used = strlen(path);
    int n = snprintf(path + used, size - used, "/%s", component);
    return n > 0 && (size_t)n < size - used;
}

static int make_path(struct pvn_topo_synth *s, int i)
{
    int chain[PVN_TOPO_MAX_CHAIN], n = 0;
    char path[PVN_TOPO_FS_PATH_MAX / 2] = "/sys/devices", name[PVN_TOPO_NAME_MAX];
    if (s->fns[i].path)
        return 0;
    for (int f = i; f >= 0; f = s->fns[f].up) {
        if (n == PVN_TOPO_MAX_CHAIN)
            return -EINVAL;
        chain[n++] = f;
    }
    const struct pvn_topo_synth_fn *top = &s->fns[chain[n - 1]];
    if (top->root[0])
        snprintf(name, sizeof(name), "%s", top->root);
    else
        snprintf(name, sizeof(name), "pci%04x:%02x", top->domain, top->bus);
    bool fits = append(path, sizeof(path), name);
    while (n > 0 && fits) {
        const struct pvn_topo_synth_fn *f = &s->fns[chain[--n]];
        pvn_topo_bdf_format(name, f->domain, f->bus, f->dev, f->fn);
        fits = append(path, sizeof(path), name);
    }
    if (!fits)
        return -EINVAL;
    return (s->fns[i].path = strdup(path)) ? 0 : -ENOMEM;
}

/* Writes one attribute of a function or device if it is known. */
static void put(struct pvn_topo_synth *s, const char *dir, const char *name, const char *format,
                int value)
{
    char path[PVN_TOPO_FS_PATH_MAX], text[64];
    if (value == PVN_TOPO_UNKNOWN)
        return;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(text, sizeof(text), format, value);
    add_record(s, PVN_TOPO_FS_FILE, path, text);
}

static void put_link(struct pvn_topo_synth *s, const char *dir, const char *name,
                     const char *target)
{
    char path[PVN_TOPO_FS_PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    add_record(s, PVN_TOPO_FS_LINK, path, target);
}

static void put_speed(struct pvn_topo_synth *s, const char *dir, const char *name, int mts)
{
    char path[PVN_TOPO_FS_PATH_MAX], text[32];
    if (mts == PVN_TOPO_UNKNOWN)
        return;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    snprintf(text, sizeof(text), "%d.%d GT/s PCIe\n", mts / 1000, mts % 1000 / 100);
    add_record(s, PVN_TOPO_FS_FILE, path, text);
}

static void put_function(struct pvn_topo_synth *s, int i)
{
    const struct pvn_topo_synth_fn *f = &s->fns[i];
    char bdf[PVN_TOPO_BDF_MAX], text[PVN_TOPO_NAME_MAX + 32];
    pvn_topo_bdf_format(bdf, f->domain, f->bus, f->dev, f->fn);
    put_link(s, "/sys/bus/pci/devices", bdf, f->path);
    add_record(s, PVN_TOPO_FS_DIR, f->path, "");
    put(s, f->path, "class", "0x%06x\n", f->class_code);
    put(s, f->path, "revision", "0x%02x\n", f->revision);
    put(s, f->path, "vendor", "0x%04x\n", f->vendor);
    put(s, f->path, "device", "0x%04x\n", f->device);
    put(s, f->path, "subsystem_vendor", "0x%04x\n", f->subvendor);
    put(s, f->path, "subsystem_device", "0x%04x\n", f->subdevice);
    put(s, f->path, "numa_node", "%d\n", f->numa);
    put(s, f->path, "secondary_bus_number", "%d\n", f->secondary);
    put(s, f->path, "subordinate_bus_number", "%d\n", f->subordinate);
    put_speed(s, f->path, "current_link_speed", f->speed_mts);
    put(s, f->path, "current_link_width", "%d\n", f->width);
    put_speed(s, f->path, "max_link_speed", f->speed_max_mts);
    put(s, f->path, "max_link_width", "%d\n", f->width_max);
    snprintf(text, sizeof(text), "/sys/bus/pci/drivers/%s", f->driver);
    if (f->driver[0])
        put_link(s, f->path, "driver", text);
    snprintf(text, sizeof(text), "/sys/kernel/iommu_groups/%d", f->iommu_group);
    if (f->iommu_group != PVN_TOPO_UNKNOWN)
        put_link(s, f->path, "iommu_group", text);
}

static void put_device(struct pvn_topo_synth *s, int i)
{
    const struct pvn_topo_synth_fn *f = &s->fns[s->devs[i].fn];
    const char *class = s->devs[i].rdma ? "infiniband" : "net";
    char dir[PVN_TOPO_FS_PATH_MAX - 128], link[64], path[PVN_TOPO_FS_PATH_MAX];
    snprintf(link, sizeof(link), "/sys/class/%s", class);
    snprintf(dir, sizeof(dir), "%.3000s/%s/%s", f->path, class, s->devs[i].name);
    put_link(s, link, s->devs[i].name, dir);
    put_link(s, dir, "device", f->path);
    for (int k = 0; k < s->n_attrs; k++) {
        if (s->attrs[k].dev != i)
            continue;
        snprintf(path, sizeof(path), "%s/%s", dir, s->attrs[k].name);
        add_record(s, PVN_TOPO_FS_FILE, path, s->attrs[k].text);
    }
    if (!s->devs[i].rdma)
        put(s, dir, "type", "%d\n", s->devs[i].ipoib ? ARPHRD_INFINIBAND : ARPHRD_ETHER);
    snprintf(path, sizeof(path), "%s/ports/1", dir);
    if (s->devs[i].rdma && !s->devs[i].ports)
        add_record(s, PVN_TOPO_FS_DIR, path, "");
}

static int by_path(const void *a, const void *b)
{
    const struct pvn_topo_record *const *x = a, *const *y = b;
    return strcmp((*x)->path, (*y)->path);
}

/* Writes the records to a tar in memory and loads it by the reader of captures. */
static int load_records(struct pvn_topo_synth *s, struct pvn_topo **topo, struct pvn_topo_err *err)
{
    int fd = memfd_create("pvn-topo", MFD_CLOEXEC), code = fd < 0 ? -errno : 0;
    off_t size = 0;
    void *image = MAP_FAILED;
    if (code == 0)
        code = pvn_topo_tar_write(fd, s->records, s->n_records);
    if (code == 0 && (size = lseek(fd, 0, SEEK_END)) > 0)
        image = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (image == MAP_FAILED) {
        snprintf(err->text, sizeof(err->text), "%s", strerror(code < 0 ? -code : ENOMEM));
        return code < 0 ? code : -ENOMEM;
    }
    const struct pvn_topo_options options = {.flags = PVN_TOPO_PARTIAL};
    code = pvn_topo_load_tar(image, (size_t)size, &options, topo, err);
    munmap(image, (size_t)size);
    return code;
}

static int write_all(struct pvn_topo_synth *s, struct pvn_topo_err *err)
{
    for (int i = 0; i < s->n_fns; i++)
        find_up(s, i);
    for (int i = 0; i < s->n_fns && s->err == 0; i++)
        s->err = make_path(s, i);
    for (int i = 0; i < s->n_fns && s->err == 0; i++)
        put_function(s, i);
    for (int i = 0; i < s->n_devs && s->err == 0; i++)
        put_device(s, i);
    if (s->err == -EINVAL)
        snprintf(err->text, sizeof(err->text),
                 "its bridges close to a loop, or are nested too deep");
    else if (s->err == -E2BIG)
        snprintf(err->text, sizeof(err->text), "more functions or devices than one machine has");
    else if (s->err < 0)
        snprintf(err->text, sizeof(err->text), "%s", strerror(-s->err));
    if (s->err == 0 && s->n_records > 0)
        qsort(s->records, (size_t)s->n_records, sizeof(*s->records), by_path);
    return s->err;
}

/* Sets facts that no file of sysfs states. */
static void put_facts(const struct pvn_topo_synth *s, struct pvn_topo *topo)
{
    for (int i = 0; i < topo->npci; i++)
        if (!s->drivers && topo->pci[i].driver_bound == PVN_TOPO_TRI_NO)
            topo->pci[i].driver_bound = PVN_TOPO_TRI_UNKNOWN;
    for (int i = 0; i < s->n_fns; i++) {
        const struct pvn_topo_synth_fn *f = &s->fns[i];
        int at = pvn_topo_find_pci_addr(topo, f->domain, f->bus, f->dev, f->fn);
        if (at >= 0 && f->link_now)
            topo->pci[at].flags |= PVN_TOPO_PCI_LINK_NOW;
    }
}

int pvn_topo_synth_load(struct pvn_topo_synth *s, const char *name, struct pvn_topo **topo,
                        struct pvn_topo_err *err)
{
    struct pvn_topo_err why;
    int code = write_all(s, &why);
    if (code == 0)
        code = load_records(s, topo, &why);
    if (code == 0) {
        put_facts(s, *topo);
        free((*topo)->source);
        if (!((*topo)->source = strdup(name))) {
            pvn_topo_free(*topo);
            *topo = NULL;
            code = -ENOMEM;
            snprintf(why.text, sizeof(why.text), "out of memory");
        }
    }
    if (code < 0)
        snprintf(err->text, sizeof(err->text), "%.150s: %.300s", name, why.text);
    pvn_topo_synth_free(s);
    return code;
}

void pvn_topo_synth_free(struct pvn_topo_synth *s)
{
    for (int i = 0; i < s->n_fns; i++)
        free(s->fns[i].path);
    for (int i = 0; i < s->n_records; i++) {
        free(s->records[i]->path);
        free(s->records[i]->data);
        free(s->records[i]);
    }
    free(s->fns);
    free(s->records);
    free(s->devs);
    free(s->attrs);
    *s = (struct pvn_topo_synth){0};
}
