(() => {
  const gallery = document.querySelector(".gallery");
  const slider = gallery.querySelector("#slider");
  const output = gallery.querySelector("output");
  const frames = [...gallery.querySelectorAll(".frame")];
  const show = () => {
    frames.forEach((frame, place) => { frame.hidden = place !== Number(slider.value); });
    const step = frames[Number(slider.value)].dataset.step;
    output.textContent = step;
    slider.setAttribute("aria-valuetext", `step ${step}`);
  };
  gallery.querySelector(".slider").hidden = frames.length < 2;
  slider.addEventListener("input", show);
  show();
})();
