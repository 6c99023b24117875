/* What the plugin says about the layout when it starts: one line per GPU, which NIC NCCL will take,
 * the class, and why. */
#ifndef PVN_TOPO_REPORT_H
#define PVN_TOPO_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pvn_topo;
struct pvn_nics;

/* A network device as the plugin reports it to NCCL, in the plugin's order. */
struct pvn_report_device {
    const char *name;     /* NCCL's name of it: the key in topology files */
    const char *pci_path; /* real sysfs path, NULL or "" for none */
    uint64_t guid;
    int port;
    int speed_mbps;  /* 0 unknown */
    int rail;        /* -1 not set */
    bool gpu_memory; /* offered to NCCL for GPU memory */
};

/* The devices as NICs of the model: PCI function, RDMA device and interface are looked up. 0 or
 * -ENOMEM; free with pvn_nics_free. */
int pvn_nics_of_devices(const struct pvn_topo *topo, const struct pvn_report_device *devices, int n,
                        struct pvn_nics *out);

/* Reads the machine below root ("/") and gives each finished line to `line`. get is getenv with its
 * contract. Says nothing but one line of counts where there is no GPU, and why when the machine
 * cannot be read; it never fails. Any thread. */
void pvn_topo_report(const char *root, const struct pvn_report_device *devices, int n,
                     const char *(*get)(const char *name, void *user),
                     void (*line)(const char *text, void *user), void *user);

#ifdef __cplusplus
}
#endif

#endif
