/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A machine that another tool describes, written as the files that its own sysfs would have, and read
 * by the reader of those: so that every form of input ends in the same model, with the same rules.
 * What the other tool does not state gets no file, and is unknown. Internal to topo/input. */
#ifndef PVN_TOPO_INPUT_SYNTH_H
#define PVN_TOPO_INPUT_SYNTH_H

#include "topo/capture/gather.h"
#include "topo/pvn_topo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A PCI function. Numbers are PVN_TOPO_UNKNOWN where they are not stated. */
struct pvn_topo_synth_fn {
    uint32_t domain;
    uint8_t bus, dev, fn;
    int up;                       /* index of the bridge above, -1: none is known */
    char root[PVN_TOPO_NAME_MAX]; /* "pci0000:17" of one without a bridge above; "": by its bus */
    char *path;                   /* the whole sysfs path where the input has it, else NULL */
    int class_code;               /* 24 bits */
    int revision;
    int vendor, device, subvendor, subdevice;
    int numa;
    int secondary, subordinate;   /* of a bridge */
    int speed_mts, width;         /* the link now; MT/s and lanes */
    int speed_max_mts, width_max; /* the most it can */
    bool link_now; /* the input has the link of that moment alone, which stands for the most, too */
    int iommu_group;
    char driver[PVN_TOPO_NAME_MAX];
};

struct pvn_topo_synth {
    struct pvn_topo_synth_fn *fns;
    int n_fns;
    struct pvn_topo_record **records;
    int n_records;
    struct {
        int fn;
        bool rdma;
        bool ipoib, ports; /* of a network interface; files of ports have been added */
        char name[PVN_TOPO_NAME_MAX];
    } * devs; /* network and RDMA devices */
    int n_devs;
    struct pvn_topo_synth_attr {
        int dev;
        char name[PVN_TOPO_NAME_MAX], text[PVN_TOPO_NAME_MAX];
    } * attrs; /* files in the directories of devs */
    int n_attrs;
    bool drivers; /* the input names the driver of each function that has one */
    int err;      /* the first failure, kept so that callers may check once */
};

/* Index of a new function of which only the address is known, or negative errno (-E2BIG). */
int pvn_topo_synth_add(struct pvn_topo_synth *s, uint32_t domain, int bus, int dev, int fn);
/* A network interface or RDMA device of a function: its index, or -1. A name that no kernel gives, or
 * that is there already, is left out. */
int pvn_topo_synth_dev(struct pvn_topo_synth *s, int fn, bool rdma, const char *name);
/* A file in the directory of such a device, "ports/1/state". None of a device -1. */
void pvn_topo_synth_attr(struct pvn_topo_synth *s, int dev, const char *name, const char *text);
/* Names "nic0", "nic1", ... for the network functions of an input that has no names. */
void pvn_topo_synth_name_nics(struct pvn_topo_synth *s);
/* A file below the root, "/sys/...". */
void pvn_topo_synth_file(struct pvn_topo_synth *s, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A file of any bytes. */
void pvn_topo_synth_bytes(struct pvn_topo_synth *s, const char *path, const void *data, size_t len);

/* Finds the bridges above by bus numbers where they are stated, writes everything and reads it. name
 * becomes the source. Contract as pvn_topo_load; frees s. */
int pvn_topo_synth_load(struct pvn_topo_synth *s, const char *name, struct pvn_topo **topo,
                        struct pvn_topo_err *err);
void pvn_topo_synth_free(struct pvn_topo_synth *s);

#ifdef __cplusplus
}
#endif
#endif
