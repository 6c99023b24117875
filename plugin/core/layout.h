/* Where the devices stand in the machine, for the log: which of them NCCL will take for each GPU.
 */
#ifndef PVN_CORE_LAYOUT_H
#define PVN_CORE_LAYOUT_H

/* Works it out from sysfs and NCCL's variables and prints it at INFO, one line per GPU. The devices
 * are loaded. Does nothing where INFO is not printed. */
void pvn_layout_log(void);

#endif
