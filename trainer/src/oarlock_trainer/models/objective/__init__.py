"""What is trained towards: the loss of flow matching, and the noise levels that it is taken at."""
