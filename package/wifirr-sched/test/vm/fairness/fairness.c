// SPDX-License-Identifier: Apache-2.0
/*
 * Says that a radio's driver supports airtime weights. mac80211_hwsim does not
 * say so, although mac80211 above it carries out weights for any driver.
 *
 *	insmod fairness.ko device=wlan0
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <net/cfg80211.h>

static char *device = "wlan0";
module_param(device, charp, 0);

static int __init fairness_init(void)
{
	struct net_device *dev = dev_get_by_name(&init_net, device);

	if (!dev)
		return -ENODEV;
	if (!dev->ieee80211_ptr) {
		dev_put(dev);
		return -EINVAL;
	}
	wiphy_ext_feature_set(dev->ieee80211_ptr->wiphy, NL80211_EXT_FEATURE_AIRTIME_FAIRNESS);
	dev_put(dev);
	return 0;
}

static void __exit fairness_exit(void)
{
}

module_init(fairness_init);
module_exit(fairness_exit);
MODULE_LICENSE("Apache-2.0");
MODULE_DESCRIPTION("Test helper: airtime weights on mac80211_hwsim");
