"""spec.training.tracking: figures of a run for TensorBoard, W&B and MLflow. None of them can hold up or end training."""
