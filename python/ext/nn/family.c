// SPDX-License-Identifier: Apache-2.0
// Types between Module and the layers, tested by isinstance in user code; a data table.
#include "nn/nn.h"

#include <string.h>

// A family, its parent family, and its direct member layers.
static const struct {
  const char *name, *above, *layers;
} families[] = {
    {"_NormBase", NULL, ""},
    {"_BatchNorm", "_NormBase", "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm"},
    {"_InstanceNorm", "_NormBase", "InstanceNorm1d InstanceNorm2d InstanceNorm3d"},
    {"_ConvNd", NULL, "Conv1d Conv2d Conv3d"},
    {"_ConvTransposeNd", "_ConvNd", "ConvTranspose1d ConvTranspose2d ConvTranspose3d"},
    {"_DropoutNd", NULL, "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout"},
    {"_MaxPoolNd", NULL, "MaxPool1d MaxPool2d MaxPool3d"},
    {"_MaxUnpoolNd", NULL, "MaxUnpool1d MaxUnpool2d MaxUnpool3d"},
    {"_AvgPoolNd", NULL, "AvgPool1d AvgPool2d AvgPool3d"},
    {"_LPPoolNd", NULL, "LPPool1d LPPool2d LPPool3d"},
    {"_AdaptiveAvgPoolNd", NULL, "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d"},
    {"_AdaptiveMaxPoolNd", NULL, "AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d"},
    {"_CircularPadNd", NULL, "CircularPad1d CircularPad2d CircularPad3d"},
    {"_ConstantPadNd", NULL, "ConstantPad1d ConstantPad2d ConstantPad3d"},
    {"_ReflectionPadNd", NULL, "ReflectionPad1d ReflectionPad2d ReflectionPad3d"},
    {"_ReplicationPadNd", NULL, "ReplicationPad1d ReplicationPad2d ReplicationPad3d"},
    {"_Loss", NULL,
     "L1Loss MSELoss SmoothL1Loss HuberLoss SoftMarginLoss KLDivLoss PoissonNLLLoss "
     "GaussianNLLLoss HingeEmbeddingLoss CosineEmbeddingLoss MarginRankingLoss TripletMarginLoss "
     "TripletMarginWithDistanceLoss MultiLabelMarginLoss CTCLoss BCEWithLogitsLoss"},
    {"_WeightedLoss", "_Loss",
     "NLLLoss BCELoss CrossEntropyLoss MultiLabelSoftMarginLoss MultiMarginLoss"},
};

const char *ext_module_family(const char *name) {
  for (int i = 0; i < EXT_LENGTH(families); i++) {
    if (!strcmp(families[i].name, name)) return families[i].above;
    if (ext_has_word(families[i].layers, name)) return families[i].name;
  }
  return NULL;
}
