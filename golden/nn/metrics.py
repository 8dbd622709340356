"""Records metrics as scikit-learn computes them: accuracy, top-k accuracy, precision, recall, F1, confusion, MAE, RMSE.

Run: python golden/nn/metrics.py > golden/nn/metrics.json (with scikit-learn)
"""

import json
import torch
from sklearn import metrics as M

torch.manual_seed(0)
N, C, K = 40, 6, 3
scores = torch.randn(N, C)
# Class 4 never occurs and class 5 is never predicted, so that zero division is part of it.
scores[:, 5] = -9
labels = torch.randint(0, C, (N,))
labels[labels == 4] = 2
scores[range(N), labels.where(labels != 5, 0)] += 1.2
labels[::9] = -100
known = labels != -100
truth, predicted = labels[known], scores[known].argmax(1)
p, r, f, s = M.precision_recall_fscore_support(truth, predicted, labels=range(C), zero_division=0)
logits, targets = torch.randn(30, 2), torch.randint(0, 2, (30, 2)).float()
yes, guess = targets.flatten() > 0.5, logits.flatten() > 0
x, y = torch.randn(25), torch.randn(25)
print(json.dumps({
    "scores": scores.tolist(), "labels": labels.tolist(), "k": K,
    "accuracy": M.accuracy_score(truth, predicted),
    "top_k_accuracy": M.top_k_accuracy_score(truth, scores[known].double(), k=K, labels=range(C)),
    "f1": M.f1_score(truth, predicted, average="macro", zero_division=0),
    "per_class": [list(map(float, row)) for row in zip(p, r, f, s)],
    "confusion": M.confusion_matrix(truth, predicted, labels=range(C)).tolist(),
    "logits": logits.tolist(), "targets": targets.tolist(),
    "binary": [M.accuracy_score(yes, guess), M.f1_score(yes, guess), M.precision_score(yes, guess), M.recall_score(yes, guess)],
    "predicted": x.tolist(), "expected": y.tolist(),
    "mae": M.mean_absolute_error(y.double(), x.double()), "rmse": M.root_mean_squared_error(y.double(), x.double()),
}))
