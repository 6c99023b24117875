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
    int vendor, device, subvendor, subdevice;
    int numa;
    int secondary, subordinate;   /* of a bridge */
    int speed_mts, width;         /* the link now; MT/s and lanes */
    int speed_max_mts, width_max; /* the most it can */
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
        char name[PVN_TOPO_NAME_MAX];
        char state[32]; /* of an RDMA port, "" unknown */
    } * devs;           /* network and RDMA devices */
    int n_devs;
    int err; /* the first failure, kept so that callers may check once */
};

/* Index of a new function of which only the address is known, or negative errno (-E2BIG). */
int pvn_topo_synth_add(struct pvn_topo_synth *s, uint32_t domain, int bus, int dev, int fn);
/* A network interface or RDMA device of a function. A name that no kernel gives is left out. */
void pvn_topo_synth_dev(struct pvn_topo_synth *s, int fn, bool rdma, const char *name,
                        const char *port_state);
/* Names "nic0", "nic1", ... for the network functions of an input that has no names. */
void pvn_topo_synth_name_nics(struct pvn_topo_synth *s);
/* A file below the root, "/sys/...". */
void pvn_topo_synth_file(struct pvn_topo_synth *s, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Finds the bridges above by bus numbers where they are stated, writes everything and reads it. name
 * becomes the source. Contract as pvn_topo_load; frees s. */
int pvn_topo_synth_load(struct pvn_topo_synth *s, const char *name, struct pvn_topo **topo,
                        struct pvn_topo_err *err);
void pvn_topo_synth_free(struct pvn_topo_synth *s);

#ifdef __cplusplus
}
#endif
#endif
