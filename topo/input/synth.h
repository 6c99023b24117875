/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* A machine that another tool describes. It is written as the files that its own sysfs would have,
 * and the reader of sysfs reads these, so that every form of input ends in the same model by the
 * same rules. Facts that the other tool does not state get no file and are unknown. Internal to
 * topo/input. */
#ifndef PVN_TOPO_INPUT_SYNTH_H
#define PVN_TOPO_INPUT_SYNTH_H

#include "topo/capture/gather.h"
#include "topo/pvn_topo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A PCI function. Numbers are PVN_TOPO_UNKNOWN if they are not stated. */
struct pvn_topo_synth_fn {
    uint32_t domain;
    uint8_t bus, dev, fn;
    int up;                       /* index of the bridge above, -1: none is known */
    char root[PVN_TOPO_NAME_MAX]; /* "pci0000:17" if no bridge is above; "": from its bus number */
    char *path;                   /* the whole sysfs path if the input has it, else NULL */
    int class_code;               /* 24 bits */
    int revision;
    int vendor, device, subvendor, subdevice;
    int numa;
    int secondary, subordinate;   /* of a bridge */
    int speed_mts, width;         /* the link now; MT/s and lanes */
    int speed_max_mts, width_max; /* the maximum */
    bool link_now; /* the input states only the current link, which is also taken as the maximum */
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

/* Adds a function of which only the address is known. Its index, or negative errno (-E2BIG). */
int pvn_topo_synth_add(struct pvn_topo_synth *s, uint32_t domain, int bus, int dev, int fn);
/* Adds a network interface or RDMA device of a function. Its index, or -1. A name that no kernel
 * gives, or that exists already, is left out. */
int pvn_topo_synth_dev(struct pvn_topo_synth *s, int fn, bool rdma, const char *name);
/* Adds a file in the directory of such a device, "ports/1/state". Does nothing for device -1. */
void pvn_topo_synth_attr(struct pvn_topo_synth *s, int dev, const char *name, const char *text);
/* Names "nic0", "nic1", ... for the network functions of an input that has no names. */
void pvn_topo_synth_name_nics(struct pvn_topo_synth *s);
/* Adds a file below the root, "/sys/...". */
void pvn_topo_synth_file(struct pvn_topo_synth *s, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Adds a file of any bytes. */
void pvn_topo_synth_bytes(struct pvn_topo_synth *s, const char *path, const void *data, size_t len);

/* Finds the bridges above each function by bus numbers, if these are stated, writes all files and
 * reads them. name becomes the source. Contract as pvn_topo_load; frees s. */
int pvn_topo_synth_load(struct pvn_topo_synth *s, const char *name, struct pvn_topo **topo,
                        struct pvn_topo_err *err);
void pvn_topo_synth_free(struct pvn_topo_synth *s);

#ifdef __cplusplus
}
#endif
#endif
